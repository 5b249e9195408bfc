//! The Secrets and ConfigMaps that a credential names: which are references, which reach a proxy, and what a new value does.

use mcp_operator::subject::Subject as _;
use serde_json::{Value, json};

use super::{
    external_auth_config::{around, proxy, server, server_spec},
    world::{World, deployment, external_auth_config, inline, oidc_config, run_config},
};

#[test]
fn a_client_secret_is_a_file_whose_new_value_rolls_nothing() {
    let mut world = server("tokenExchange");
    let plan = world.plan();
    let pod = &deployment(&plan)["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let found = |name: &str| env.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name} in {env:?}"));
    let given = &found("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET")["valueFrom"]["secretKeyRef"];
    assert_eq!(*given, json!({"name": "s", "key": "k"}));
    let path = "/etc/toolhive/token-exchange";
    assert_eq!(found("PORTCULLIS_TOKEN_EXCHANGE_CLIENT_SECRET_FILE")["value"], format!("{path}/client-secret"));
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|it| it["mountPath"] == path).unwrap();
    assert!(mount["subPath"].is_null(), "such a mount never changes: {mount}");
    let volume = pod["volumes"].as_array().unwrap().iter().find(|it| it["name"] == mount["name"]).unwrap();
    let items = json!([{"key": "k", "path": "client-secret"}]);
    assert_eq!(volume["secret"], json!({"secretName": "s", "items": items}));
    let said = format!("{:?}{}", plan.conditions, serde_json::to_string(&plan.status).unwrap());
    assert!(!said.contains("hunter2") && !run_config(&plan).contains("hunter2"));

    let mut remote = proxy("bearerToken");
    let of_remote = deployment(&remote.plan()).clone();
    for secrets in [&mut world.data.secrets, &mut remote.data.secrets] {
        secrets.clear();
    }
    world.secret("s", "k", "rotated");
    remote.secret("s", "k", "rotated");
    assert_eq!(deployment(&world.plan()), deployment(&plan), "the file has the new one");
    assert_ne!(*deployment(&remote.plan()), of_remote, "a bearer token comes by the environment");
    // The login of the same workload may use the same value, and reads it at the start.
    let login = json!({"name": "idp", "audience": "a"});
    let spec = server_spec(json!({"externalAuthConfigRef": {"name": "credential"}, "oidcConfigRef": login}));
    let mut both: World = around("MCPServer", spec, "tokenExchange");
    let client = json!({"clientId": "c", "clientSecretRef": {"name": "s", "key": "k"}});
    both.has(oidc_config("idp", inline(client)));
    let before = deployment(&both.plan()).clone();
    both.secret("s", "k", "rotated");
    assert_ne!(*deployment(&both.plan()), before);
}

/// An authorization server with every Secret and ConfigMap that one may name, as `KIND/NAME` after each field.
fn every_source() -> (Value, Vec<(&'static str, &'static str)>) {
    let secret = |name: &str| json!({"name": name, "key": "k"});
    let bundle = |name: &str| json!({"configMapRef": {"name": name, "key": "k"}});
    let registration =
        |name: &str| json!({"registrationEndpoint": "https://idp/r", "initialAccessTokenRef": secret(name)});
    let redis = json!({
        "aclUserConfig": {"passwordSecretRef": secret("redis-password"), "usernameSecretRef": secret("redis-user")},
        "tls": {"caCertSecretRef": secret("redis-ca")}, "sentinelTls": {"caCertSecretRef": secret("sentinel-ca")},
    });
    let delegate =
        |name: &str| json!([{"clientId": "d", "audiences": ["a"], "scopes": ["s"], "clientSecretRef": secret(name)}]);
    let file = json!({"type": "file", "file": {"configMapName": "spiffe", "configMapKey": "k"}});
    let server = json!({
        "issuer": "https://auth.example.com",
        "upstreamProviders": [
            {"name": "a", "type": "oidc", "oidcConfig": {
                "issuerUrl": "https://idp", "caBundleRef": bundle("oidc-ca"), "clientSecretRef": secret("oidc"),
                "dcrConfig": registration("oidc-registration"),
            }},
            {"name": "b", "type": "oauth2", "oauth2Config": {
                "authorizationEndpoint": "https://idp/a", "tokenEndpoint": "https://idp/t",
                "caBundleRef": bundle("oauth2-ca"), "clientSecretRef": secret("oauth2"),
                "dcrConfig": registration("oauth2-registration"),
            }},
        ],
        "hmacSecretRefs": [secret("hmac")], "signingKeySecretRefs": [secret("signing")],
        "tlsListener": {"certificateSecretRef": secret("certificate"), "privateKeySecretRef": secret("key")},
        "storage": {"type": "redis", "redis": redis}, "delegateClients": delegate("delegate"),
        "inboundGrants": {"tokenExchange": {"delegateClients": delegate("inbound")}},
        "trustedIssuers": [{"issuerUrl": "https://idp", "caBundleRef": bundle("issuer-ca")}],
        "spiffeTrustDomains": [{"name": "d", "trustDomain": "d", "methods": ["spiffe_jwt"], "bundleSource": file}],
    });
    let fields = vec![
        ("delegateClients[0].clientSecretRef", "Secret/delegate"),
        ("hmacSecretRefs[0]", "Secret/hmac"),
        ("inboundGrants.tokenExchange.delegateClients[0].clientSecretRef", "Secret/inbound"),
        ("signingKeySecretRefs[0]", "Secret/signing"),
        ("spiffeTrustDomains[0].bundleSource.file.configMapName", "ConfigMap/spiffe"),
        ("storage.redis.aclUserConfig.passwordSecretRef", "Secret/redis-password"),
        ("storage.redis.aclUserConfig.usernameSecretRef", "Secret/redis-user"),
        ("storage.redis.sentinelTls.caCertSecretRef", "Secret/sentinel-ca"),
        ("storage.redis.tls.caCertSecretRef", "Secret/redis-ca"),
        ("tlsListener.certificateSecretRef", "Secret/certificate"),
        ("tlsListener.privateKeySecretRef", "Secret/key"),
        ("trustedIssuers[0].caBundleRef.configMapRef", "ConfigMap/issuer-ca"),
        ("upstreamProviders[0].oidcConfig.caBundleRef.configMapRef", "ConfigMap/oidc-ca"),
        ("upstreamProviders[0].oidcConfig.clientSecretRef", "Secret/oidc"),
        ("upstreamProviders[0].oidcConfig.dcrConfig.initialAccessTokenRef", "Secret/oidc-registration"),
        ("upstreamProviders[1].oauth2Config.caBundleRef.configMapRef", "ConfigMap/oauth2-ca"),
        ("upstreamProviders[1].oauth2Config.clientSecretRef", "Secret/oauth2"),
        ("upstreamProviders[1].oauth2Config.dcrConfig.initialAccessTokenRef", "Secret/oauth2-registration"),
    ];
    (json!({"type": "embeddedAuthServer", "embeddedAuthServer": server}), fields)
}

#[test]
fn all_that_an_authorization_server_names_are_references() {
    let (spec, expected) = every_source();
    let config = external_auth_config("credential", spec);
    let mut found: Vec<_> = config.references();
    found.sort_by(|one, other| one.field.cmp(&other.field));
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.field.strip_prefix("spec.embeddedAuthServer.").unwrap(), format!("{}/{}", it.kind, it.name)))
        .collect();
    let expected: Vec<_> = expected.into_iter().map(|(field, object)| (field, object.to_owned())).collect();
    assert_eq!(found, expected);
    // The schema has no other member that names one.
    let contract = include_str!("../../../../api/tests/mcp_api/contract/MCPExternalAuthConfig.json");
    let named = contract.lines().filter(|line| {
        let path = line.trim_start().trim_start_matches('"').split('"').next().unwrap_or_default();
        let is_named = ["Ref.key", "Refs[].key", ".configMapName"].iter().any(|end| path.ends_with(end));
        path.starts_with(".spec.embeddedAuthServer") && is_named
    });
    assert_eq!(named.count(), expected.len());
}
