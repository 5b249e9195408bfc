//! The plan of an MCPOIDCConfig, and of a server whose callers log in as one says.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use mcp_operator::{config::ConfigKind as _, subject::Subject as _};
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::config_plan::{now, plan, says};
use super::world::{
    Plan, World, checksum, child, condition, deployment, guards, inline, is_absent, oidc_config, run_config,
};

const SECRETS: &str = "toolhive.stacklok.dev/secrets-checksum";
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn cluster(block: &Value) -> Value {
    json!({"type": "kubernetesServiceAccount", "kubernetesServiceAccount": block})
}

fn login(world: &World) -> Value {
    let document: Value = serde_json::from_str(run_config(&world.plan())).unwrap();
    let chain = document["middleware_configs"].as_array().unwrap();
    let entry = chain.iter().find(|entry| entry["type"] == "auth").unwrap();
    assert_eq!(entry["parameters"]["oidc_config"], document["oidc_config"], "both places say the same");
    document["oidc_config"].clone()
}

fn pod_of(plan: &Plan) -> &Value {
    &deployment(plan)["spec"]["template"]["spec"]
}

fn secrets_checksum(plan: &Plan) -> &Value {
    &deployment(plan)["spec"]["template"]["metadata"]["annotations"][SECRETS]
}

/// The entry of a list with this value under `key`.
fn entry<'a>(list: &'a Value, key: &str, value: &str) -> Option<&'a Value> {
    list.as_array().unwrap().iter().find(|entry| entry[key] == value)
}

#[test]
fn a_valid_config_says_so_and_lists_who_refers_to_it() {
    let mut config = oidc_config("idp", inline(json!({})));
    let first = plan(&config, &[("VirtualMCPServer", "a"), ("MCPServer", "b"), ("MCPServer", "a")]);
    assert_eq!(says(&first, "Valid").unwrap(), ("True".into(), "ConfigValid".into(), "Spec validation passed".into()));
    assert_eq!(first.status.config_hash, Some(config.hash()));
    assert_eq!(
        serde_json::to_value(&first.status.referencing_workloads).unwrap(),
        json!([
            {"kind": "MCPServer", "name": "a"}, {"kind": "MCPServer", "name": "b"}, {"kind": "VirtualMCPServer", "name": "a"},
        ])
    );
    assert_eq!(first.events.iter().map(|event| &*event.reason).collect::<Vec<_>>(), ["ConfigValid"]);

    config.status = Some(first.status);
    config.metadata.deletion_timestamp = Some(Time(now()));
    let blocked = plan(&config, &[("MCPServer", "a")]);
    assert!(!blocked.may_go && says(&blocked, "DeletionBlocked").is_some());
    assert_eq!(blocked.events.iter().map(|event| &*event.reason).collect::<Vec<_>>(), ["DeletionBlocked"]);
    // Of a hundred workloads that move to another configuration ninety-nine are no event.
    config.status = Some(blocked.status);
    let still = plan(&config, &[("MCPServer", "b")]);
    assert!(says(&still, "DeletionBlocked").unwrap().2.ends_with("MCPServers: b"));
    assert!(still.events.is_empty(), "{:?}", still.events);
    assert!(plan(&config, &[]).may_go);
}

#[test]
fn every_rule_that_it_breaks_is_said_with_its_field() {
    let long = "a".repeat(49);
    let cases = [
        (json!({"type": "inline"}), "spec.inline", "is missing"),
        (
            inline(json!({"issuer": "idp.example.com"})),
            "spec.inline.issuer",
            "OIDC issuer URL \"idp.example.com\" is malformed: missing scheme or host",
        ),
        (
            inline(json!({"issuer": ""})),
            "spec.inline.issuer",
            "OIDC issuer URL \"\" is malformed: missing scheme or host",
        ),
        (inline(json!({"issuer": "https://"})), "spec.inline.issuer", "is malformed: missing scheme or host"),
        (
            inline(json!({"issuer": "https://user@idp", "jwksUrl": "https://idp/k"})),
            "spec.inline.issuer",
            "OIDC issuer URL has a user name in it; remove it",
        ),
        (inline(json!({"jwksUrl": "https://u:p@idp/k"})), "spec.inline.jwksUrl", "has a user name in it"),
        (
            inline(json!({"issuer": "http://idp"})),
            "spec.inline.issuer",
            "OIDC issuer URL \"http://idp\" uses HTTP scheme, which is insecure; use HTTPS or set insecureAllowHTTP: true for \
             development only",
        ),
        (
            inline(json!({"issuer": "ldap://idp"})),
            "spec.inline.issuer",
            "OIDC issuer URL \"ldap://idp\" has unsupported scheme \"ldap\"; must be http or https",
        ),
        (
            inline(json!({"jwksUrl": "http://idp/k"})),
            "spec.inline.jwksUrl",
            "JWKS URL \"http://idp/k\" uses HTTP scheme",
        ),
        (inline(json!({"jwksUrl": "/keys"})), "spec.inline.jwksUrl", "JWKS URL \"/keys\" is malformed"),
        (
            inline(json!({"introspectionUrl": "ftp://i"})),
            "spec.inline.introspectionUrl",
            "has unsupported scheme \"ftp\"",
        ),
        (
            inline(json!({"clientSecretRef": {"name": "s", "key": ""}})),
            "spec.inline.clientSecretRef",
            "names no Secret or no key",
        ),
        (
            inline(json!({"caBundleRef": {"configMapRef": {"name": long, "key": "k"}}})),
            "spec.inline.caBundleRef.configMapRef.name",
            "is too long (49 chars); maximum is 48 characters to fit in Kubernetes volume name",
        ),
        (inline(json!({"caBundleRef": {}})), "spec.inline.caBundleRef.configMapRef.name", "is empty"),
        (inline(json!({"jwksAuthTokenPath": "token"})), "spec.inline.jwksAuthTokenPath", "is not an absolute path"),
        (
            inline(json!({"jwksUrl": "https://evil/k", "jwksAuthTokenPath": format!("{ACCOUNT}/token")})),
            "spec.inline.jwksAuthTokenPath",
            "would show a provider the token by which the proxy's pod calls the Kubernetes API",
        ),
        (
            inline(
                json!({"jwksAuthTokenPath": "/run//secrets/kubernetes.io/serviceaccount/../serviceaccount/..data/token"}),
            ),
            "spec.inline.jwksAuthTokenPath",
            "use type kubernetesServiceAccount",
        ),
        (
            cluster(&json!({"issuer": "http://api"})),
            "spec.kubernetesServiceAccount.issuer",
            "uses HTTP scheme, which is insecure; use HTTPS",
        ),
        (
            cluster(&json!({"jwksUrl": "https://user@kubernetes.default.svc/k"})),
            "spec.kubernetesServiceAccount.jwksUrl",
            "has a user name in it",
        ),
        (
            cluster(&json!({"jwksUrl": "keys"})),
            "spec.kubernetesServiceAccount.jwksUrl",
            "JWKS URL \"keys\" is malformed",
        ),
        (
            cluster(&json!({"introspectionUrl": "http://api"})),
            "spec.kubernetesServiceAccount.introspectionUrl",
            "introspection URL \"http://api\" uses HTTP",
        ),
    ];
    for (spec, field, message) in cases {
        let config = oidc_config("idp", spec.clone());
        let problems = config.problems();
        assert_eq!(problems.len(), 1, "{spec}: {problems:?}");
        assert!(problems[0].field == field && problems[0].message.contains(message), "{spec}: {problems:?}");
        let plan = plan(&config, &[]);
        let (status, reason, _) = says(&plan, "Valid").unwrap();
        assert_eq!((&*status, &*reason, plan.status.config_hash), ("False", "ConfigInvalid", None), "{spec}");
        assert_eq!(plan.events[0].reason, "ConfigInvalid");
    }
    let fine = [
        inline(json!({"issuer": "http://idp", "jwksUrl": "http://idp/k", "insecureAllowHTTP": true})),
        inline(json!({"jwksUrl": "", "introspectionUrl": "", "jwksAuthTokenPath": ""})),
        inline(json!({"caBundleRef": {"configMapRef": {"name": "a".repeat(48), "key": ""}}})),
        cluster(&json!({})),
        cluster(&json!({"issuer": ""})),
        json!({"type": "kubernetesServiceAccount"}),
    ];
    for spec in fine {
        assert_eq!(oidc_config("idp", spec.clone()).problems(), Vec::new(), "{spec}");
    }
}

#[test]
fn addresses_that_a_proxy_may_not_call_are_refused_where_the_text_says_so() {
    let settings = World::login().settings;
    let cases = [
        (inline(json!({"issuer": "https://169.254.169.254"})), "spec.inline.issuer"),
        (inline(json!({"issuer": "https://localhost:8443"})), "spec.inline.issuer"),
        (inline(json!({"issuer": "https://kubernetes.default.svc"})), "spec.inline.issuer"),
        (inline(json!({"jwksUrl": "https://10.1.2.3/k"})), "spec.inline.jwksUrl"),
        (inline(json!({"jwksUrl": "https://127.0.0.1/k", "jwksAllowPrivateIP": true})), "spec.inline.jwksUrl"),
        (inline(json!({"introspectionUrl": "https://idp.auth.svc.cluster.local"})), "spec.inline.introspectionUrl"),
        (cluster(&json!({"issuer": "https://169.254.169.254"})), "spec.kubernetesServiceAccount.issuer"),
        (cluster(&json!({"useClusterAuth": false})), "spec.kubernetesServiceAccount.issuer"),
        (cluster(&json!({"jwksUrl": "https://[::1]/k"})), "spec.kubernetesServiceAccount.jwksUrl"),
    ];
    for (spec, field) in cases {
        let config = oidc_config("idp", spec.clone());
        let fields: Vec<_> = config.settings_problems(&settings).into_iter().map(|problem| problem.field).collect();
        assert_eq!(fields, [field], "{spec}");
        let plan = plan(&config, &[]);
        assert!(says(&plan, "Valid").unwrap().2.contains(field), "{spec}");
        let mut world = World::login();
        world.has(config);
        assert_eq!(condition(&world.plan(), "OIDCConfigRefValidated", "False").unwrap().0, "OIDCConfigRefNotValid");
    }
    let fine = [
        inline(json!({"jwksUrl": "https://10.1.2.3/k", "jwksAllowPrivateIP": true})),
        // An issuer with keys elsewhere is a name that is compared, and never called.
        inline(json!({"issuer": "https://localhost", "jwksUrl": "https://idp/k"})),
        cluster(&json!({})),
        cluster(&json!({"jwksUrl": "https://kubernetes.default.svc.cluster.local/openid/v1/jwks"})),
        cluster(&json!({"useClusterAuth": false, "jwksUrl": "https://oidc.example.com/k"})),
        cluster(&json!({"issuer": "https://10.96.0.1"})),
    ];
    for spec in fine {
        assert_eq!(oidc_config("idp", spec.clone()).settings_problems(&settings), Vec::new(), "{spec}");
    }
    let mut loopback = settings;
    loopback.exempt_endpoints = vec!["127.0.0.0/8".parse().unwrap()];
    let config = oidc_config("idp", inline(json!({"issuer": "http://127.0.0.1:9998", "insecureAllowHTTP": true})));
    assert_eq!(config.settings_problems(&loopback), Vec::new());
}

#[test]
fn what_does_less_or_more_than_it_seems_is_warned_of() {
    let settings = World::login().settings;
    let warnings = |spec| oidc_config("idp", spec).warnings(&settings);
    let cases = [
        (cluster(&json!({"namespace": "n"})), "spec.kubernetesServiceAccount.namespace: is not checked"),
        (cluster(&json!({"serviceAccount": "s"})), "spec.kubernetesServiceAccount.serviceAccount: is not checked"),
        (
            cluster(&json!({"jwksUrl": "https://evil/k"})),
            "spec.kubernetesServiceAccount.jwksUrl: \"https://evil/k\" is shown the token",
        ),
        (
            cluster(&json!({"issuer": "https://oidc.eks/x"})),
            "spec.kubernetesServiceAccount.issuer: \"https://oidc.eks/x\"",
        ),
        (inline(json!({"insecureAllowHTTP": true})), "spec.inline.insecureAllowHTTP: whoever"),
        (inline(json!({"jwksAuthTokenPath": "/token"})), "spec.inline.jwksAuthTokenPath: whoever answers"),
        (inline(json!({"clientSecretRef": {"name": "s", "key": "k"}})), "spec.inline.clientSecretRef: has no effect"),
        (
            inline(json!({"protectedResourceAllowPrivateIP": true})),
            "spec.inline.protectedResourceAllowPrivateIP: has no",
        ),
    ];
    for (spec, words) in cases {
        let warnings = warnings(spec);
        assert!(warnings.len() == 1 && warnings[0].starts_with(words), "{warnings:?}");
    }
    let own = json!({"issuer": "https://oidc.eks/x", "jwksUrl": "https://kubernetes.default.svc/openid/v1/jwks"});
    let other = json!({"issuer": "https://oidc.eks/x", "useClusterAuth": false});
    for fine in [inline(json!({})), cluster(&json!({})), cluster(&own), cluster(&other)] {
        assert_eq!(warnings(fine), Vec::<String>::new());
    }
}

// toolhive-auth §2.1
#[test]
fn the_run_config_has_the_login_that_the_config_and_the_reference_say() {
    let empty = json!({
        "Issuer": "", "Audience": "fetch", "JWKSURL": "", "ClientID": "", "ClientSecret": "", "CACertPath": "", "AuthTokenFile": "",
        "AllowPrivateIP": false, "InsecureAllowHTTP": false, "IntrospectionURL": "",
        "ResourceURL": "http://mcp-fetch-proxy.team.svc.cluster.local:8080", "Scopes": null,
    });
    let api = json!({
        "Issuer": "https://kubernetes.default.svc", "AllowPrivateIP": true,
        "CACertPath": format!("{ACCOUNT}/ca.crt"), "AuthTokenFile": format!("{ACCOUNT}/token"),
    });
    let cases = [
        (json!({"type": "kubernetesServiceAccount"}), json!({}), api.clone()),
        (cluster(&json!({})), json!({}), api.clone()),
        (cluster(&json!({"issuer": "", "useClusterAuth": true})), json!({}), api),
        (
            cluster(
                &json!({"issuer": "https://oidc.eks/x", "jwksUrl": "https://oidc.eks/k", "introspectionUrl": "https://i/",
                "useClusterAuth": false, "namespace": "n", "serviceAccount": "s"}),
            ),
            json!({}),
            json!({"Issuer": "https://oidc.eks/x", "JWKSURL": "https://oidc.eks/k", "IntrospectionURL": "https://i/"}),
        ),
        (
            inline(json!({"jwksUrl": "https://idp/k", "introspectionUrl": "https://idp/i", "clientId": "mcp",
                "jwksAuthTokenPath": "/token", "jwksAllowPrivateIP": true, "protectedResourceAllowPrivateIP": true})),
            json!({"scopes": ["openid", "mcp"], "resourceUrl": "https://mcp.example.com/"}),
            json!({"Issuer": "https://idp.example.com", "JWKSURL": "https://idp/k", "IntrospectionURL": "https://idp/i",
                "ClientID": "mcp", "AuthTokenFile": "/token", "AllowPrivateIP": true, "Scopes": ["openid", "mcp"],
                "ResourceURL": "https://mcp.example.com/"}),
        ),
        (
            inline(json!({"issuer": "http://idp", "insecureAllowHTTP": true,
                "caBundleRef": {"configMapRef": {"name": "idp-ca", "key": ""}}})),
            json!({"resourceUrl": "", "scopes": []}),
            json!({"Issuer": "http://idp", "InsecureAllowHTTP": true, "CACertPath": "/config/certs/idp-ca/ca.crt"}),
        ),
    ];
    for (spec, reference, changed) in cases {
        let mut world = World::login();
        world.has(oidc_config("idp", spec.clone()));
        let mut server = json!({"name": "idp", "audience": "fetch"});
        server.as_object_mut().unwrap().extend(reference.as_object().unwrap().clone());
        world.workload.spec.oidc_config_ref = serde_json::from_value(server).unwrap();
        let mut expected = empty.clone();
        expected.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        assert_eq!(login(&world), expected, "{spec}");
        let plan = world.plan();
        let automount = pod_of(&plan).get("automountServiceAccountToken");
        let uses_account = expected["AuthTokenFile"].as_str().unwrap().starts_with(ACCOUNT);
        assert_eq!(automount, Some(&json!(uses_account)), "{spec}");
        assert!(child(&plan, ChildKind::Role, "fetch-proxy-runner").is_none(), "the token opens nothing");
    }
}

#[test]
fn a_login_needs_a_variable_and_a_directory() {
    let mut world = World::login();
    world.workload.spec.resource_overrides = serde_json::from_value(json!({"proxyDeployment": {
        "env": [{"name": "TOOLHIVE_OIDC_CLIENT_SECRET", "value": "forged"}, {"name": "MINE", "value": "1"}],
    }}))
    .unwrap();
    let plan = world.plan();
    let container = &pod_of(&plan)["containers"][0];
    let env = container["env"].as_array().unwrap();
    let secret: Vec<_> = env.iter().filter(|var| var["name"] == "TOOLHIVE_OIDC_CLIENT_SECRET").collect();
    let reference = json!({"secretKeyRef": {"name": "client", "key": "secret"}});
    assert_eq!(secret, [&json!({"name": "TOOLHIVE_OIDC_CLIENT_SECRET", "valueFrom": reference})]);
    assert!(entry(&container["env"], "name", "MINE").is_some());
    assert_eq!(
        entry(&pod_of(&plan)["volumes"], "name", "oidc-ca-bundle-idp-ca").unwrap()["configMap"],
        json!({"name": "idp-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]})
    );
    assert_eq!(
        entry(&container["volumeMounts"], "mountPath", "/config/certs/idp-ca"),
        Some(&json!({"name": "oidc-ca-bundle-idp-ca", "mountPath": "/config/certs/idp-ca", "readOnly": true}))
    );
    assert!(!format!("{:?}", plan.children).contains("hunter2"));

    // Names of ConfigMaps may have dots, names of volumes not.
    let reference = json!({"configMapRef": {"name": "kube-root-ca.crt", "key": "ca.crt"}});
    world.has(oidc_config("idp", inline(json!({"caBundleRef": reference}))));
    world.config_map("kube-root-ca.crt", "ca.crt", &super::pem::authority());
    let plan = world.plan();
    assert!(entry(&pod_of(&plan)["volumes"], "name", "oidc-ca-bundle-kube-root-ca-crt").is_some());
    assert_eq!(secrets_checksum(&plan), &Value::Null, "no Secret, no checksum");
}

#[test]
fn an_edit_of_the_client_secret_rolls_the_proxy_and_an_edit_of_the_ca_does_not() {
    let mut world = World::login();
    let before = world.plan();
    world.config_map("idp-ca", "ca.crt", &format!("{}{}", super::pem::authority(), super::pem::authority()));
    assert_eq!(world.plan().children, before.children, "the file reaches the running proxy");
    world.secret("client", "other", "unused");
    assert_eq!(world.plan().children, before.children, "another key of the Secret");
    world.secret("client", "secret", "hunter3");
    let after = world.plan();
    assert_ne!(secrets_checksum(&after), secrets_checksum(&before));
    assert_eq!((checksum(&after), guards(&after)), (checksum(&before), guards(&before)), "who may call is the same");
}

#[test]
fn a_server_whose_login_is_missing_or_broken_gets_no_proxy_and_says_why() {
    type Case = (fn(&mut World), &'static str, &'static str, &'static str);
    let (oidc, bundle) = ("OIDCConfigRefValidated", "CABundleRefValidated");
    let cases: [Case; 7] = [
        (|world| world.configs.clear(), oidc, "OIDCConfigRefNotFound", "MCPOIDCConfig \"idp\" does not exist"),
        (
            |world| world.has(oidc_config("idp", inline(json!({"issuer": "http://idp"})))),
            oidc,
            "OIDCConfigRefNotValid",
            "spec.inline.issuer: ",
        ),
        (
            |world| _ = world.data.secrets.remove("client"),
            oidc,
            "OIDCConfigRefError",
            "spec.inline.clientSecretRef: Secret \"client\" does not exist",
        ),
        (|world| world.secret("client", "secret", ""), oidc, "OIDCConfigRefError", "Secret client/secret is empty"),
        (
            |world| _ = world.data.config_maps.remove("idp-ca"),
            bundle,
            "CABundleRefNotFound",
            "CA bundle ConfigMap \"idp-ca\" does not exist; create it with the key \"ca.crt\"",
        ),
        (
            |world| _ = world.data.config_maps.get_mut("idp-ca").unwrap().remove("ca.crt"),
            bundle,
            "CABundleRefNotFound",
            "CA bundle ConfigMap \"idp-ca\" has no key \"ca.crt\"; add it",
        ),
        (
            |world| world.config_map("idp-ca", "ca.crt", "CA"),
            bundle,
            "CABundleRefInvalid",
            "ConfigMap idp-ca/ca.crt holds no PEM certificate",
        ),
    ];
    for (breaks, type_, reason, words) in cases {
        let mut world = World::login();
        let plan = world.plan();
        assert_eq!(condition(&plan, oidc, "True").unwrap().0, "OIDCConfigRefValid");
        let said = condition(&plan, bundle, "True").unwrap();
        assert_eq!(said, ("CABundleRefValid".into(), "CA bundle ConfigMap 'idp-ca' is valid (key: ca.crt)".into()));
        breaks(&mut world);
        let plan = world.plan();
        let (said, message) = condition(&plan, type_, "False").unwrap();
        assert!(said == reason && message.contains(words), "{said}: {message}");
        assert!(condition(&plan, oidc, "False").is_some(), "{reason}: what lacks its CA cannot be used");
        assert!(plan.children.is_empty() && is_absent(&plan, ChildKind::Deployment, "fetch"), "{reason}");
        assert_eq!((plan.status.phase.unwrap().as_str(), &plan.status.oidc_config_hash), ("Failed", &None), "{reason}");

        // What runs with a login goes on, and what runs without goes.
        let mut guarded = World::login();
        guarded.applied(&guarded.plan());
        breaks(&mut guarded);
        let plan = guarded.plan();
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{reason}");
        let mut open = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
        open.applied(&open.plan());
        (open.workload.spec, open.configs, open.data) =
            (guarded.workload.spec.clone(), guarded.configs.clone(), guarded.data.clone());
        assert!(is_absent(&open.plan(), ChildKind::Deployment, "fetch"), "{reason}");
    }
}

#[test]
fn a_login_that_is_added_never_stands_beside_an_open_proxy() {
    let mut world = World::login();
    let login = world.workload.spec.oidc_config_ref.take();
    let open = world.plan();
    assert_eq!(guards(&open), &Value::Null);
    world.applied(&open);
    world.pods = vec![world.pod_of_now("Running", true, None)];
    world.workload.spec.oidc_config_ref = login;
    let plan = world.plan();
    assert!(is_absent(&plan, ChildKind::Deployment, "fetch") && child(&plan, ChildKind::Deployment, "fetch").is_none());
    assert_eq!(condition(&plan, "GuardsEnforced", "False").unwrap().0, "GuardMissing");
    // Another configuration is another guard: who had a token for the one may have none for the other.
    let mut repointed = World::login();
    repointed.applied(&repointed.plan());
    repointed.workload.spec.oidc_config_ref.as_mut().unwrap().name = "other".into();
    repointed.has(oidc_config("other", inline(json!({}))));
    assert!(is_absent(&repointed.plan(), ChildKind::Deployment, "fetch"));
}

#[test]
fn a_changed_audience_alone_is_another_policy_until_every_pod_enforces_it() {
    let mut world = World::login();
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    let before = world.plan();
    let hash = world.hash("MCPOIDCConfig", "idp");
    let mark = guards(&before).as_str().unwrap();
    assert!(mark.starts_with(&format!("MCPOIDCConfig/idp/{hash}/")), "{mark}");
    assert!(condition(&before, "GuardsEnforced", "True").is_some());
    assert_eq!(before.status.oidc_config_hash, Some(hash.clone()), "the configuration's own");

    let changes: [fn(&mut World); 3] = [
        |world| world.workload.spec.oidc_config_ref.as_mut().unwrap().audience = "other".into(),
        |world| world.workload.spec.oidc_config_ref.as_mut().unwrap().scopes = Some(vec!["mcp".into()]),
        |world| world.workload.spec.oidc_config_ref.as_mut().unwrap().resource_url = Some("https://mcp/".into()),
    ];
    for change in changes {
        let mut world = world.clone();
        change(&mut world);
        let after = world.plan();
        assert_ne!(guards(&after), guards(&before));
        assert!(!is_absent(&after, ChildKind::Deployment, "fetch"), "it rolls without a gap");
        assert_eq!(condition(&after, "GuardsEnforced", "False").unwrap().0, "PolicyOutdated");
        assert_eq!(after.status.oidc_config_hash, Some(hash.clone()), "of the configuration nothing changed");
        world.applied(&after);
        let old: Vec<Pod> = std::mem::take(&mut world.pods);
        world.pods = vec![world.pod_of_now("Running", true, None)];
        assert!(condition(&world.plan(), "GuardsEnforced", "True").is_some());
        world.pods.extend(old);
        assert!(condition(&world.plan(), "GuardsEnforced", "False").is_some(), "an old pod serves as well");
    }
    // What the configuration says cannot be told while it is not usable. Whose tokens the reference wants can.
    let breaks: [fn(&mut World); 2] =
        [|world| world.configs.clear(), |world| world.has(oidc_config("idp", json!({"type": "inline"})))];
    for make_broken in breaks {
        let mut world = world.clone();
        make_broken(&mut world);
        assert_eq!(world.plan().absent, [], "the reference is as it was");
        changes[0](&mut world);
        assert!(is_absent(&world.plan(), ChildKind::Deployment, "fetch"), "it takes tokens for another audience");
    }
}

#[test]
fn a_reference_that_says_nothing_of_use_is_refused_with_its_field() {
    let cases = [
        (json!({"audience": " "}), "spec.oidcConfigRef.audience"),
        (json!({"resourceUrl": "mcp.example.com"}), "spec.oidcConfigRef.resourceUrl"),
        (json!({"resourceUrl": "ftp://mcp.example.com"}), "spec.oidcConfigRef.resourceUrl"),
        (json!({"resourceUrl": "https://mcp.example.com/#here"}), "spec.oidcConfigRef.resourceUrl"),
        (json!({"resourceUrl": "https://user@mcp.example.com/"}), "spec.oidcConfigRef.resourceUrl"),
        (json!({"scopes": ["a", "b c"]}), "spec.oidcConfigRef.scopes[1]"),
        (json!({"scopes": [""]}), "spec.oidcConfigRef.scopes[0]"),
        (json!({"scopes": ["a\"b"]}), "spec.oidcConfigRef.scopes[0]"),
    ];
    for (change, field) in cases {
        let mut world = World::login();
        let mut reference = json!({"name": "idp", "audience": "fetch"});
        reference.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        world.workload.spec.oidc_config_ref = serde_json::from_value(reference).unwrap();
        let fields: Vec<_> = world.workload.problems().into_iter().map(|problem| problem.field).collect();
        assert_eq!(fields, [field], "{change}");
        assert!(world.plan().children.is_empty(), "{change}");
    }
    assert_eq!(World::login().workload.problems(), Vec::new());
}

// Security S7.
#[test]
fn no_path_leads_a_provider_to_files_that_are_not_for_it() {
    for (path, message) in [
        ("/proc/self/root/var/run/secrets/kubernetes.io/serviceaccount/token", "is below /proc"),
        ("/proc/self/cwd/token", "is below /proc"),
        ("/proc", "is below /proc"),
        ("/sys/x", "is below /sys"),
        ("/dev/fd/3", "is below /dev"),
        ("/etc/runconfig/runconfig.json", "is below /etc/runconfig"),
        ("/etc/toolhive/webhooks/policy/hmac", "is below /etc/toolhive"),
        ("/config/certs/idp-ca/ca.crt", "is below /config/certs"),
        ("//proc/self/environ", "is below /proc"),
        ("/tmp/../proc/self/environ", "is below /proc"),
        ("/tmp/../token", "is not a plain path"),
        ("/./token", "is not a plain path"),
        ("/tmp//token", "is not a plain path"),
        ("/token/", "is not a plain path"),
        ("/", "is not a plain path"),
        ("/run/secrets/kubernetes.io/serviceaccount/token", "use type kubernetesServiceAccount"),
    ] {
        let problems = oidc_config("idp", inline(json!({"jwksAuthTokenPath": path}))).problems();
        assert_eq!(problems.len(), 1, "{path}: {problems:?}");
        assert_eq!(problems[0].field, "spec.inline.jwksAuthTokenPath");
        assert!(problems[0].message.contains(message), "{path}: {}", problems[0]);
    }
    for path in ["/token", "/vault/secrets/idp", "/var/run/secrets/idp/token", "/processes/x", "/etc/toolhive-idp/x"] {
        assert_eq!(oidc_config("idp", inline(json!({"jwksAuthTokenPath": path}))).problems(), [], "{path}");
    }
}
