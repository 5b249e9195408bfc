//! MCPRemoteProxy: its children, its rules, its status.

use std::collections::BTreeSet;

use mcp_api::v1beta1::MCPRemoteProxy;
use mcp_operator::subject::Subject as _;
use mcp_plan::{
    reference::{Data, Reference},
    workload::{ChildKind, ChildRef},
};
use serde_json::{Value, json};

use super::world::{self, child, condition, deployment, run_config, tool_config};

const CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";
const SECRETS: &str = "toolhive.stacklok.dev/secrets-checksum";
const GUARDS: &str = "toolhive.stacklok.dev/guards";

/// What surrounds a proxy called `fetch`.
type World = world::World<MCPRemoteProxy>;
type Plan = world::Plan<MCPRemoteProxy>;

impl World {
    /// With these members in its spec besides the address of its server.
    fn with(change: Value) -> Self {
        let mut spec = json!({"remoteUrl": "https://mcp.example.com/mcp"});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        Self::around(json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPRemoteProxy",
            "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3}, "spec": spec,
        }))
    }

    /// With a header from the Secret `keys`, which exists.
    fn with_secret_header() -> Self {
        let header = json!({"headerName": "X-Api-Key", "valueSecretRef": {"name": "keys", "key": "api"}});
        let mut world = Self::with(json!({"headerForward": {"addHeadersFromSecret": [header]}}));
        world.secret("keys", "api", "hunter2");
        world
    }

    /// As it is once its first plan was applied.
    fn settled(mut self) -> Self {
        self.applied(&self.plan());
        self
    }
}

impl Plan {
    fn template(&self) -> &Value {
        &deployment(self)["spec"]["template"]
    }

    fn container(&self) -> &Value {
        &self.template()["spec"]["containers"][0]
    }

    /// The value of a variable of the proxy, or where it comes from.
    fn variable(&self, name: &str) -> &Value {
        let env = self.container()["env"].as_array().unwrap();
        let found: Vec<_> = env.iter().filter(|var| var["name"] == name).collect();
        assert!(found.len() <= 1, "{name} is there {} times", found.len());
        found.first().map_or(&Value::Null, |var| var.get("value").unwrap_or(&var["valueFrom"]))
    }

    fn document(&self) -> Value {
        serde_json::from_str(run_config(self)).unwrap()
    }
}

#[test]
fn every_field_of_a_proxy_reaches_its_place() {
    let plan = World::with(json!({
        "proxyPort": 9000, "replicas": 2, "sessionAffinity": "None", "endpointPrefix": "/p", "trustProxyHeaders": true,
        "allowPrivateEndpoint": true, "resources": {"limits": {"memory": "256Mi"}},
        "resourceOverrides": {
            "proxyDeployment": {"env": [{"name": "HOME", "value": "/home"}], "imagePullSecrets": [{"name": "pull"}]},
            "proxyService": {"labels": {"tier": "gold", "app": "forged"}},
        },
    }))
    .plan();
    let (container, pod) = (plan.container(), &plan.template()["spec"]);
    assert_eq!(container["name"], "toolhive");
    assert_eq!(container["args"], json!(["run", "--foreground=true", "placeholder-for-remote-proxy"]));
    let delays = ["livenessProbe", "readinessProbe"].map(|probe| container[probe]["initialDelaySeconds"].clone());
    assert_eq!(delays, [json!(30), json!(15)]);
    assert_eq!(container["ports"][0]["containerPort"], 9000);
    assert_eq!(container["resources"]["limits"]["memory"], "256Mi");
    assert_eq!((plan.variable("HOME"), plan.variable("TOOLHIVE_RUNTIME")), (&json!("/home"), &json!("kubernetes")));
    assert_eq!(pod["serviceAccountName"], "fetch-remote-proxy-runner");
    assert_eq!(pod["automountServiceAccountToken"], false, "it needs no Kubernetes API");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(deployment(&plan)["spec"]["replicas"], 2);

    let service = child(&plan, ChildKind::Service, "mcp-fetch-remote-proxy").unwrap();
    assert_eq!(
        (&service["spec"]["sessionAffinity"], &service["spec"]["ports"][0]["port"]),
        (&json!("None"), &json!(9000))
    );
    assert_eq!(
        (&service["metadata"]["labels"]["tier"], &service["metadata"]["labels"]["app"]),
        (&json!("gold"), &json!("mcpremoteproxy"))
    );
    let document = plan.document();
    assert_eq!(document["remote_url"], "https://mcp.example.com/mcp");
    for (member, value) in [
        ("image", json!("")),
        ("port", json!(9000)),
        ("transport", json!("streamable-http")),
        ("endpoint_prefix", json!("/p")),
        ("trust_proxy_headers", json!(true)),
        ("portcullis", json!({"allow_private_endpoint": true})),
    ] {
        assert_eq!(document[member], value, "{member}");
    }
    let labels = &child(&plan, ChildKind::ConfigMap, "fetch-runconfig").unwrap()["metadata"]["labels"];
    assert_eq!(labels["toolhive.stacklok.io/mcp-remote-proxy"], "fetch");
    assert!(World::with(json!({})).plan().document().get("portcullis").is_none(), "left out where it is false");
}

#[test]
fn there_is_no_role_and_an_account_only_where_none_is_named() {
    let plan = World::with(json!({})).plan();
    let kinds: Vec<_> = plan.children.iter().map(|child| child.reference.kind).collect();
    assert_eq!(kinds, [ChildKind::ServiceAccount, ChildKind::ConfigMap, ChildKind::Service, ChildKind::Deployment]);
    for kind in [ChildKind::Role, ChildKind::RoleBinding] {
        let theirs = ChildRef::new(kind, "fetch-remote-proxy-runner");
        assert!(plan.absent.contains(&theirs), "ToolHive's right to read Secrets goes");
    }
    let template = json!({"spec": {"containers": [], "serviceAccountName": "other"}});
    for (spec, account) in [
        (json!({"serviceAccount": "own"}), "own"),
        (json!({"serviceAccount": "own", "podTemplateSpec": template}), "own"),
        (json!({"podTemplateSpec": template}), "other"),
    ] {
        let plan = World::with(spec.clone()).plan();
        assert_eq!(plan.template()["spec"]["serviceAccountName"], account, "{spec}");
        let made = child(&plan, ChildKind::ServiceAccount, "fetch-remote-proxy-runner").is_some();
        assert_eq!(made, account == "other", "{spec}");
    }
}

#[test]
fn headers_reach_the_proxy_and_the_values_of_secret_ones_no_document() {
    let mut world = World::with_secret_header();
    let forward = world.workload.spec.header_forward.as_mut().unwrap();
    forward.add_plaintext_headers = Some([("X-Tenant".to_owned(), "acme".to_owned())].into());
    let env = json!([{"name": "TOOLHIVE_SECRETS_PROVIDER", "value": "none"},
        {"name": "TOOLHIVE_SECRET_HEADER_FORWARD_X_API_KEY_FETCH", "value": "forged"}]);
    world.workload.spec.resource_overrides = serde_json::from_value(json!({"proxyDeployment": {"env": env}})).unwrap();
    let plan = world.plan();
    assert_eq!(plan.variable("TOOLHIVE_SECRETS_PROVIDER"), "environment");
    let from = &plan.variable("TOOLHIVE_SECRET_HEADER_FORWARD_X_API_KEY_FETCH")["secretKeyRef"];
    assert_eq!(from, &json!({"name": "keys", "key": "api"}));
    let document = plan.document();
    assert_eq!(
        document["header_forward"],
        json!({
            "add_plaintext_headers": {"X-Tenant": "acme"},
            "add_headers_from_secret": {"X-Api-Key": "HEADER_FORWARD_X_API_KEY_FETCH"},
        })
    );
    let chain = document["middleware_configs"].as_array().unwrap();
    let kinds: Vec<_> = chain.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["bodylimit", "auth", "mcp-parser", "header-forward", "recovery"]);
    assert_eq!(chain[3]["parameters"], json!({"add_headers": {"X-Tenant": "acme"}}));

    let public = World::with(json!({"headerForward": {"addPlaintextHeaders": {"X-Tenant": "acme"}}})).plan();
    assert!(public.variable("TOOLHIVE_SECRETS_PROVIDER").is_null());
    assert!(World::with(json!({"headerForward": {}})).plan().document().get("header_forward").is_none());
}

#[test]
fn a_changed_secret_rolls_the_pods_and_changes_no_document() {
    let mut world = World::with_secret_header();
    let before = world.plan();
    world.secret("keys", "api", "hunter3");
    let after = world.plan();
    let digest = |plan: &Plan| plan.template()["metadata"]["annotations"][SECRETS].as_str().unwrap().to_owned();
    assert_ne!(digest(&before), digest(&after));
    assert_eq!(before.document(), after.document());
    let mut rolled = after.template().clone();
    rolled["metadata"]["annotations"][SECRETS] = json!(digest(&before));
    assert_eq!(&rolled, before.template(), "nothing else changed");
    assert!(World::with(json!({})).plan().template()["metadata"]["annotations"].get(SECRETS).is_none());
}

#[test]
fn a_header_whose_secret_is_missing_gets_no_proxy_and_leaves_what_runs() {
    let running = World::with(json!({})).settled();
    for runs in [false, true] {
        let mut world = World::with_secret_header();
        world.data = Data::default();
        if runs {
            (world.deployment, world.children) = (running.deployment.clone(), running.children.clone());
        }
        let plan = world.plan();
        let (reason, message) = condition(&plan, "ConfigurationValid", "False").unwrap();
        assert!(
            reason == "HeaderSecretNotFound"
                && message.starts_with("spec.headerForward.addHeadersFromSecret[0].valueSecretRef: Secret \"keys\" "),
            "{reason}: {message}"
        );
        assert_eq!(plan.status.phase.unwrap().as_str(), "Failed");
        assert!(plan.children.is_empty());
        assert_eq!(plan.absent, [], "{runs}");
        // The proxy would send it to the server, which would refuse every call.
        world.secret("keys", "api", "");
        let plan = world.plan();
        let (reason, message) = condition(&plan, "ConfigurationValid", "False").unwrap();
        assert!(
            reason == "HeaderSecretNotUsable" && message.contains("Secret keys/api is empty"),
            "{reason}: {message}"
        );
        assert!(plan.children.is_empty() && plan.absent.is_empty());
        world.secret("keys", "api", "there");
        assert!(condition(&world.plan(), "ConfigurationValid", "True").is_some());
    }
    let references: Vec<_> = World::with_secret_header().workload.references().iter().map(Reference::token).collect();
    assert_eq!(references, ["Secret/keys"], "its change wakes the proxy");
}

#[test]
fn every_rule_of_a_proxy_names_its_field() {
    let header = |name: &str, value: &str| json!({"headerForward": {"addPlaintextHeaders": {name: value}}});
    let secret = |names: &[&str]| {
        let entry = |name: &&str| json!({"headerName": name, "valueSecretRef": {"name": "keys", "key": "api"}});
        json!({"headerForward": {"addHeadersFromSecret": names.iter().map(entry).collect::<Vec<_>>()}})
    };
    let both = json!({"headerForward": {
        "addPlaintextHeaders": {"x-api-key": "a"},
        "addHeadersFromSecret": [{"headerName": "X-Api-Key", "valueSecretRef": {"name": "keys", "key": "api"}}],
    }});
    let nameless = json!({"headerForward": {
        "addHeadersFromSecret": [{"headerName": "X-Key", "valueSecretRef": {"name": "", "key": "api"}}]}});
    let field = "spec.headerForward.addHeadersFromSecret";
    for (change, message) in [
        (header("Host", "a"), "spec.headerForward.addPlaintextHeaders[Host]: \"Host\" is not for others to add".to_owned()),
        (header("X-Forwarded-For", "a"), "spec.headerForward.addPlaintextHeaders[X-Forwarded-For]: ".to_owned()),
        (header("Proxy-Authorization", "a"), "spec.headerForward.addPlaintextHeaders[Proxy-Authorization]: ".to_owned()),
        (header("Mcp-Session-Id", "a"), "spec.headerForward.addPlaintextHeaders[Mcp-Session-Id]: ".to_owned()),
        (header("a b", "a"), "spec.headerForward.addPlaintextHeaders[a b]: \"a b\" cannot name a header".to_owned()),
        (header("X-A", "a\nb"), "spec.headerForward.addPlaintextHeaders[X-A]: is not a header's value".to_owned()),
        (secret(&["transfer-encoding"]), format!("{field}[0].headerName: \"transfer-encoding\" is not for others")),
        (secret(&["X-Key", "x-key"]), format!("{field}[1].headerName: \"x-key\" is added twice")),
        (secret(&["X-Key", "X_Key"]), format!("{field}[1].headerName: \"X_Key\" differs from another header")),
        (both, format!("{field}[0].headerName: \"X-Api-Key\" is added twice")),
        (nameless, format!("{field}[0].valueSecretRef: names no Secret")),
        (json!({"resources": {"limits": {"cpu": "lots"}}}), "spec.resources.limits.cpu: ".to_owned()),
        (
            json!({"podTemplateSpec": {"spec": {"containers": [{"image": "x"}]}}}),
            "spec.podTemplateSpec.spec.containers[0].name: is missing; the container that the operator makes is called \"toolhive\"".to_owned(),
        ),
        (
            json!({"resourceOverrides": {"proxyDeployment": {"env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.1"}]}}}),
            "spec.resourceOverrides.proxyDeployment.env[0].name: \"KUBERNETES_SERVICE_HOST\" tells the proxy where".to_owned(),
        ),
        (
            json!({"podTemplateSpec": {"spec": {"containers": [
                {"name": "sidecar", "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.1"}]},
                {"name": "toolhive", "env": [{"name": "A"}, {"name": "KUBERNETES_SERVICE_PORT", "value": "1"}]},
            ]}}}),
            "spec.podTemplateSpec.spec.containers[1].env[1].name: \"KUBERNETES_SERVICE_PORT\" tells the proxy".to_owned(),
        ),
        (
            json!({"podTemplateSpec": {"spec": {"containers": [
                {"name": "toolhive", "volumeMounts": [{"name": "own", "mountPath": "/mcp-runner", "subPath": "proxy"}]},
            ]}}}),
            "spec.podTemplateSpec.spec.containers[0].volumeMounts[0].mountPath: \"/mcp-runner\" would hide".to_owned(),
        ),
        (
            json!({"podTemplateSpec": {"spec": {"containers": [], "shareProcessNamespace": true}}}),
            "spec.podTemplateSpec.spec.shareProcessNamespace: would let other processes reach".to_owned(),
        ),
    ] {
        let mut world = World::with(change.clone());
        world.secret("keys", "api", "there");
        let problems = world.workload.problems();
        assert_eq!(problems.len(), 1, "{change}: {problems:?}");
        assert!(problems[0].to_string().starts_with(&message), "{} / {message}", problems[0]);
        let plan = world.plan();
        assert!(plan.children.is_empty(), "{change}: nothing is rendered from it");
        let type_ = if message.contains("is missing; the container") { "PodTemplateValid" } else { "ConfigurationValid" };
        assert!(condition(&plan, type_, "False").unwrap().1.contains(&message), "{change}");
    }
    for (name, fits) in [("a".repeat(46), true), ("a".repeat(47), false), ("a.b".to_owned(), false)] {
        let mut world = World::with(json!({}));
        world.workload.metadata.name = Some(name.clone());
        assert_eq!(world.workload.problems().is_empty(), fits, "{name}");
    }
}

#[test]
fn a_spec_is_not_said_to_be_valid_beside_a_guard_that_is_not_built() {
    let mut world = World::with(json!({"toolConfigRef": {"name": "x"}}));
    world.settings.runner_middleware.clear();
    let (reason, message) = condition(&world.plan(), "ConfigurationValid", "False").unwrap();
    assert!(reason == "GuardNotBuilt" && message.starts_with("spec.toolConfigRef"), "{reason}: {message}");
    assert!(condition(&World::with(json!({})).plan(), "ConfigurationValid", "True").is_some());
}

#[test]
fn an_address_that_the_proxy_may_not_call_gets_no_proxy() {
    let cases = [
        ("https://mcp.example.com", true, true, true),
        ("http://127.0.0.1:3000/mcp", false, false, true),
        ("http://localhost:3000/mcp", false, false, true),
        ("http://169.254.169.254/latest", false, false, false),
        ("https://kubernetes.default.svc", false, false, false),
        ("https://10.1.2.3/mcp", false, true, false),
        ("http://mcp.prod.svc.cluster.local/mcp", false, true, false),
        ("https://user:pass@mcp.example.com", false, false, false),
    ];
    for (url, public, private, exempt) in cases {
        let judge = |allow_private: bool, networks: &[&str], fits: bool| {
            let mut world = World::with(json!({"remoteUrl": url, "allowPrivateEndpoint": allow_private}));
            world.settings.exempt_endpoints = networks.iter().map(|it| it.parse().unwrap()).collect();
            let (problems, plan) = (world.workload.settings_problems(&world.settings), world.plan());
            assert_eq!(problems.is_empty(), fits, "{url}, {allow_private}, {networks:?}: {problems:?}");
            assert_eq!(plan.children.is_empty(), !fits, "{url}");
            if !fits {
                assert_eq!(problems[0].field, "spec.remoteUrl");
                assert_eq!(condition(&plan, "ConfigurationValid", "False").unwrap().0, "RemoteURLInvalid");
            }
            plan
        };
        judge(false, &[], public);
        judge(true, &[], private);
        let plan = judge(false, &["127.0.0.0/8", "::1/128"], exempt);
        if exempt {
            assert_eq!(plan.container()["args"][3], "--allow-endpoint-cidr=127.0.0.0/8,::1/128");
        }
    }
    let private = World::with(json!({"remoteUrl": "http://10.0.0.1/mcp"}));
    let said = private.workload.settings_problems(&private.settings)[0].to_string();
    assert!(said.contains("or allow private endpoints: spec.allowPrivateEndpoint of"), "{said}");
}

#[test]
fn the_kubernetes_api_is_no_remote_server_by_its_address_nor_by_any_of_its_names() {
    let refused = |url: &str, api: Option<&str>| {
        let mut world = World::with(json!({"remoteUrl": url, "allowPrivateEndpoint": true}));
        world.settings.kubernetes_api = api.map(str::to_owned);
        let problems = world.workload.every_problem(&world.settings);
        assert_eq!(world.plan().children.is_empty(), !problems.is_empty(), "{url}");
        problems.first().map(ToString::to_string)
    };
    let api = Some("10.96.0.1");
    let name = Some("api.example.com");
    for (url, api, host) in [
        ("https://10.96.0.1/api", api, "10.96.0.1"),
        ("https://[::ffff:10.96.0.1]:6443", api, "[::ffff:10.96.0.1]"),
        ("https://[fd00::1]", Some("fd00::1"), "[fd00::1]"),
        ("https://API.example.com.:6443/", name, "API.example.com."),
        ("https://kubernetes", None, "kubernetes"),
        ("https://kubernetes.default", None, "kubernetes.default"),
        ("https://kubernetes.default.svc", None, "kubernetes.default.svc"),
        ("https://kubernetes.default.svc.corp.example", None, "kubernetes.default.svc.corp.example"),
    ] {
        let message = refused(url, api).expect("refused");
        assert!(message.starts_with(&format!("spec.remoteUrl: host {host:?} is ")), "{message}");
        assert!(
            message.ends_with("or the Kubernetes API; name another server, or see --allow-endpoint-cidr"),
            "{message}"
        );
    }
    for (url, api) in [("https://10.96.0.2", api), ("https://10.96.0.1", None), ("https://mcp.api.example.com", name)] {
        assert_eq!(refused(url, api), None, "{url}");
    }
    let mut exempt = World::with(json!({"remoteUrl": "https://10.96.0.1"}));
    exempt.settings.kubernetes_api = api.map(str::to_owned);
    exempt.settings.exempt_endpoints = vec!["10.96.0.0/16".parse().unwrap()];
    assert_eq!(exempt.workload.every_problem(&exempt.settings), [], "as the proxy does when it calls it");
}

/// seeds/004: what users add to the pods stays beside what the operator needs there, on the level that they added it to.
#[test]
fn annotations_of_users_survive_beside_the_operators_and_on_their_own_level() {
    let vault = json!({
        "vault.hashicorp.com/agent-inject": "true", CHECKSUM: "forged", GUARDS: "forged", SECRETS: "forged",
    });
    let mut world = World::with_secret_header();
    let spec = json!({
        "remoteUrl": "https://mcp.example.com/mcp", "headerForward": world.workload.spec.header_forward,
        "toolConfigRef": {"name": "tools"},
        "resourceOverrides": {"proxyDeployment": {
            "annotations": {"deploy/team": "core", GUARDS: "forged", "deployment.kubernetes.io/revision": "forged"}, "labels": {"deploy/tier": "gold"},
            "podTemplateMetadataOverrides": {"annotations": vault},
        }},
        "podTemplateSpec": {
            "metadata": {"annotations": {"linkerd.io/inject": "enabled", CHECKSUM: "forged", GUARDS: "forged"},
                "labels": {"app": "forged", "team": "a"}},
            "spec": {"priorityClassName": "high", "containers": [
                {"name": "toolhive", "image": "evil", "resources": {"limits": {"memory": "1Gi"}},
                    "env": [{"name": "SSL_CERT_FILE", "value": "/mine.crt"}, {"name": "TOOLHIVE_OIDC_CLIENT_SECRET", "value": "forged"}]},
                {"name": "sidecar", "image": "sidecar:1"},
            ], "enableServiceLinks": true},
        },
    });
    world.workload.spec = serde_json::from_value(spec).unwrap();
    world.has(tool_config("tools", json!({"toolsFilter": ["fetch"]})));
    let plan = world.plan();
    let annotations = &plan.template()["metadata"]["annotations"];
    let keys: BTreeSet<_> = annotations.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, [CHECKSUM, GUARDS, SECRETS, "linkerd.io/inject", "vault.hashicorp.com/agent-inject"].into());
    assert!(annotations.as_object().unwrap().values().all(|value| value != "forged"), "{annotations}");
    assert_eq!(deployment(&plan)["metadata"]["annotations"], json!({"deploy/team": "core"}));
    let labels = &plan.template()["metadata"]["labels"];
    assert_eq!(
        (&labels["app"], &labels["team"], labels.get("deploy/tier")),
        (&json!("mcpremoteproxy"), &json!("a"), None)
    );
    let env = plan.container()["env"].to_string();
    assert!(env.contains("SSL_CERT_FILE") && !env.contains("forged"), "{env}");
    assert_eq!(plan.container()["image"], world.settings.runner_image);
    assert_eq!(plan.container()["resources"]["limits"]["memory"], "1Gi");
    assert_eq!(plan.template()["spec"]["containers"][1]["name"], "sidecar");
    assert_eq!(plan.template()["spec"]["priorityClassName"], "high");
    assert_eq!(plan.template()["spec"]["enableServiceLinks"], false);
    for kept in ["containers[0].image", "containers[0].env[SSL_CERT_FILE]", "enableServiceLinks"] {
        let kept = format!("spec.podTemplateSpec.spec.{kept} has no effect");
        assert!(world.workload.warnings(&world.settings).iter().any(|warning| warning.starts_with(&kept)));
        let (_, message) = condition(&plan, "PodTemplateValid", "True").unwrap();
        assert!(message.contains(&kept), "{message}");
    }

    // A second plan says the same, at any later time.
    world.applied(&plan);
    world.now = "2027-01-01T00:00:00Z".parse().unwrap();
    let again = world.plan();
    assert_eq!((&again.children, &again.status.conditions), (&plan.children, &world.plan().status.conditions));
    assert!(again.events.is_empty(), "{:?}", again.events);
}

#[test]
fn the_status_is_what_the_pods_say_in_the_kinds_own_words() {
    let pod = world::pod;
    for (pods, replicas, phase, reason, message) in [
        (vec![], None, "Pending", "DeploymentNotReady", "Remote proxy is being created"),
        (vec![], Some(0), "Pending", "DeploymentNotReady", "Remote proxy is stopped (scaled to zero)"),
        (vec![pod("Running", false, None)], None, "Pending", "DeploymentNotReady", "Remote proxy is starting"),
        (vec![pod("Running", true, None)], None, "Ready", "DeploymentReady", "Remote proxy is running"),
        (
            vec![
                pod("Running", false, Some("InvalidImageName")),
                pod("Running", false, Some("CrashLoopBackOff")),
                pod("Running", false, Some("CrashLoopBackOff")),
            ],
            None,
            "Failed",
            "DeploymentNotReady",
            "Remote proxy failed to start: CrashLoopBackOff, InvalidImageName",
        ),
    ] {
        let mut world = World::with(json!({"replicas": replicas})).settled();
        world.pods = pods;
        let plan = world.plan();
        assert_eq!((plan.status.phase.unwrap().as_str(), plan.status.message.as_deref()), (phase, Some(message)));
        let status = if phase == "Ready" { "True" } else { "False" };
        assert_eq!(condition(&plan, "Ready", status).unwrap(), (reason.to_owned(), message.to_owned()));
        assert_eq!(condition(&plan, "ConfigurationValid", "True").unwrap().1, "All configuration validations passed");
        let url = "http://mcp-fetch-remote-proxy.team.svc.cluster.local:8080";
        assert_eq!((plan.status.url.as_deref(), plan.status.observed_generation), (Some(url), Some(3)));
    }
}

// toolhive-0.63 §2.3
#[test]
fn what_keeps_a_proxy_from_being_made_is_said_in_toolhives_words() {
    let bad_header = json!({"headerForward": {"addPlaintextHeaders": {"Host": "a"}}});
    let login = json!({"oidcConfigRef": {"name": "idp", "audience": "fetch"}});
    let tools = json!({"toolConfigRef": {"name": "tools"}});
    for (spec, message, auth) in [
        (json!({"remoteUrl": "http://10.0.0.1"}), "Validation failed: spec.remoteUrl: ", true),
        (bad_header, "Validation failed: spec.headerForward.addPlaintextHeaders[Host]: ", true),
        (
            login,
            "Failed to handle MCPOIDCConfig: spec.oidcConfigRef: MCPOIDCConfig \"idp\" does not exist; create it",
            false,
        ),
        (
            tools,
            "Failed to handle MCPToolConfig: spec.toolConfigRef: MCPToolConfig \"tools\" does not exist; create it",
            false,
        ),
        (
            json!({"authServerRef": {"name": "a"}}),
            "Failed to handle MCPExternalAuthConfig: spec.authServerRef: MCPExternalAuthConfig \"a\" does not exist; create it",
            false,
        ),
    ] {
        let plan = World::with(spec.clone()).plan();
        assert_eq!(plan.status.phase.unwrap().as_str(), "Failed", "{spec}");
        let said = plan.status.message.clone().unwrap();
        assert!(said.starts_with(message), "{said}");
        assert_eq!(condition(&plan, "Ready", "False"), Some(("NotReady".to_owned(), said)));
        let invalid = condition(&plan, "ConfigurationValid", "False");
        assert_eq!(condition(&plan, "AuthConfigured", "False").map(|it| it.0), auth.then(|| "AuthInvalid".to_owned()));
        assert_eq!(condition(&plan, "AuthConfigured", "False").map(|it| it.1), invalid.map(|it| it.1));
    }
    let fine = World::with(json!({})).plan();
    assert!(fine.conditions.iter().all(|condition| condition.type_ != "AuthConfigured"), "{:?}", fine.conditions);
}

#[test]
fn a_tool_config_guards_a_proxy_as_it_does_a_server() {
    let mut world = World::with(json!({"toolConfigRef": {"name": "tools"}}));
    assert_eq!(condition(&world.plan(), "ToolConfigValidated", "False").unwrap().0, "ToolConfigNotFound");
    assert_eq!(world.workload.references()[0].token(), "MCPToolConfig/tools");
    world.has(tool_config("tools", json!({"toolsFilter": ["fetch"]})));
    let plan = world.plan();
    assert_eq!(plan.document()["tools_filter"], json!(["fetch"]));
    assert!(plan.status.tool_config_hash.is_some());
    let unguarded = World::with(json!({})).settled();
    (world.deployment, world.children) = (unguarded.deployment, unguarded.children);
    let plan = world.plan();
    assert!(plan.absent.contains(&ChildRef::new(ChildKind::Deployment, "fetch")), "an unguarded pod goes first");
}

#[test]
fn what_is_not_built_is_said_and_a_guard_that_is_not_gets_no_proxy() {
    let mut world = World::with(json!({"toolConfigRef": {"name": "x"}}));
    world.settings.runner_middleware.clear();
    let world = world.settled();
    let plan = world.plan();
    let (reason, message) = condition(&plan, "GuardsEnforced", "False").unwrap();
    assert!(reason == "GuardNotBuilt" && message.contains("spec.toolConfigRef"), "{reason}: {message}");
    assert!(plan.children.is_empty() && plan.status.phase.unwrap().as_str() == "Failed");
    let warnings = world.workload.warnings(&world.settings);
    assert!(
        warnings.iter().any(|warning| warning.starts_with("spec.toolConfigRef cannot be enforced")),
        "{warnings:?}"
    );
    let plan = World::with(json!({"groupRef": {"name": "g"}})).plan();
    let message = condition(&plan, "UnsupportedFields", "True").unwrap().1;
    assert_eq!(message, "spec.groupRef has no effect in this version");
    assert!(!plan.children.is_empty());
    let mut clear = World::with_secret_header();
    clear.workload.spec.remote_url = "http://mcp.example.com".into();
    assert!(clear.workload.warnings(&clear.settings)[0].contains("clear text"));
}

#[test]
fn a_remote_server_that_speaks_sse_is_served_without_a_warning() {
    let world = World::with(json!({"transport": "sse"}));
    let plan = world.plan();
    let document = plan.document();
    assert_eq!((&document["transport"], &document["proxy_mode"]), (&json!("sse"), &json!("sse")));
    assert_eq!(world.workload.warnings(&world.settings), Vec::<String>::new());
}
