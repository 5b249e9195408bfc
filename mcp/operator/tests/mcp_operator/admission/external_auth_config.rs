//! Refusals and warnings at `kubectl apply` of an MCPExternalAuthConfig, and of workloads that refer to one.

use portcullis_testing::wait_until;
use serde_json::json;

use super::{
    DEADLINE, Gate, fields,
    support::{auth_server, exchange, external_auth_config, labelled, oidc_config, remote_proxy},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_cannot_work_is_refused_with_its_field() {
    let gate = Gate::new("credential").await;
    let _operator = gate.serving(&[]).await;
    let role = "arn:aws:iam::123456789012:role/ops";
    let aws = |mapping| json!({"type": "awsSts", "awsSts": {"region": "eu-central-1", "roleMappings": [mapping]}});
    for (spec, field) in [
        (exchange(json!({"tokenUrl": "idp"})), "spec.tokenExchange.tokenUrl"),
        (exchange(json!({"externalTokenHeaderName": "Host"})), "spec.tokenExchange.externalTokenHeaderName"),
        (aws(json!({"roleArn": role})), "spec.awsSts.roleMappings[0]"),
        (aws(json!({"roleArn": role, "matcher": "\"ops\" in claims["})), "spec.awsSts.roleMappings[0].matcher"),
        (aws(json!({"roleArn": role, "matcher": "[".repeat(1000)})), "spec.awsSts.roleMappings[0].matcher"),
        (json!({"type": "obo", "obo": {}}), "spec.type"),
    ] {
        let answer = gate.objects.post(external_auth_config("credential", spec.clone()), false).await;
        assert_eq!(answer.code, 422, "{spec}: {}", answer.body);
        assert_eq!(fields(&answer.body), [field], "{}", answer.body);
    }
    let fine = aws(json!({"roleArn": role, "matcher": "\"ops\" in claims[\"groups\"]"}));
    let answer = gate.objects.post(external_auth_config("aws", fine), false).await;
    assert_eq!((answer.code, answer.warnings), (201, Vec::new()), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_author_is_told_what_an_authorization_server_lacks() {
    let gate = Gate::new("credential-lacks").await;
    let _operator = gate.serving(&[]).await;
    let objects = &gate.objects;
    let mut spec = auth_server();
    let oidc = &mut spec["embeddedAuthServer"]["upstreamProviders"][0]["oidcConfig"];
    oidc["clientSecretRef"] = json!({"name": "client", "key": "secret"});
    oidc["caBundleRef"] = json!({"configMapRef": {"name": "authorities", "key": "ca.crt"}});
    let config = external_auth_config("server", spec);
    let field = "spec.embeddedAuthServer.upstreamProviders[0].oidcConfig";
    let lacks = [
        format!("299 - \"{field}.caBundleRef.configMapRef: ConfigMap \"authorities\" does not exist yet"),
        format!("299 - \"{field}.clientSecretRef: Secret \"client\" does not exist yet"),
    ];
    let answer = objects.post(config.clone(), true).await;
    assert_eq!((answer.code, answer.warnings.len()), (201, 2), "{:?}", answer.warnings);
    assert!(answer.warnings.iter().zip(&lacks).all(|(found, start)| found.starts_with(start)), "{:?}", answer.warnings);
    for (kind, name) in [("Secret", "client"), ("ConfigMap", "authorities")] {
        objects.create(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})).await;
    }
    assert_eq!(objects.post(config, true).await.warnings, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_is_warned_of_a_credential_that_it_does_not_send() {
    let gate = Gate::new("credential-warned").await;
    let _operator = gate.serving(&[]).await;
    let objects = &gate.objects;
    let key = json!({"name": "s", "key": "k"});
    let header = json!({"type": "headerInjection", "headerInjection": {"headerName": "X-Key", "valueSecretRef": key}});
    let bearer = json!({"type": "bearerToken", "bearerToken": {"tokenSecretRef": key}});
    objects
        .create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}))
        .await;
    objects.create(external_auth_config("header", header)).await;
    objects.create(external_auth_config("bearer", bearer)).await;
    objects.create(external_auth_config("tokens", exchange(json!({})))).await;
    objects.create(oidc_config("idp", json!({}))).await;
    let login = json!({"name": "idp", "audience": "a"});
    let idle = "is used by a VirtualMCPServer only; this proxy sends no credential";
    for (object, warning) in [
        (labelled("idle", json!({"externalAuthConfigRef": {"name": "header"}})), Some(("header", idle))),
        (remote_proxy("far", json!({"externalAuthConfigRef": {"name": "header"}})), Some(("header", idle))),
        (
            labelled("open", json!({"externalAuthConfigRef": {"name": "tokens"}})),
            Some(("tokens", "without spec.oidcConfigRef")),
        ),
        (labelled("local", json!({"externalAuthConfigRef": {"name": "bearer"}})), Some(("bearer", "MCPRemoteProxy"))),
        (labelled("fine", json!({"externalAuthConfigRef": {"name": "tokens"}, "oidcConfigRef": login})), None),
        (
            remote_proxy("shown", json!({"externalAuthConfigRef": {"name": "bearer"}})),
            Some(("bearer", "sends one token for every caller")),
        ),
        (
            remote_proxy(
                "clear",
                json!({"externalAuthConfigRef": {"name": "bearer"}, "oidcConfigRef": login,
                "remoteUrl": "http://mcp.example.com"}),
            ),
            Some(("bearer", "is sent in clear text")),
        ),
    ] {
        // Configurations are known from a watch.
        wait_until("what is said of it", DEADLINE, || async {
            let answer = objects.post(object.clone(), true).await;
            assert_eq!(answer.code, 201, "{}", answer.body);
            let said: Vec<_> = answer.warnings.iter().filter(|it| !it.contains("groupRef")).collect();
            let Some((name, words)) = warning else { return said.is_empty().then_some(()) };
            let start = format!("spec.externalAuthConfigRef: MCPExternalAuthConfig \"{name}\" ");
            (said.len() == 1 && said[0].contains(&start) && said[0].contains(words)).then_some(())
        })
        .await;
    }
    let grouped = json!({"externalAuthConfigRef": {"name": "header"}, "groupRef": {"name": "g"}});
    let answer = objects.post(labelled("grouped", grouped), true).await;
    assert_eq!(answer.warnings, ["299 - \"spec.groupRef has no effect in this version\""]);
}
