//! What is said at `kubectl apply` of MCPOIDCConfig, and of a server's reference to one.

use serde_json::{Value, json};

use super::{
    Gate, fields,
    support::{labelled, oidc_config},
};

fn refers(name: &str, change: Value) -> Value {
    let mut reference = json!({"name": "idp", "audience": "web"});
    reference.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    labelled(name, json!({"oidcConfigRef": reference}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_can_never_work_is_refused_with_its_field() {
    let gate = Gate::new("oidc").await;
    let operator = gate.serving(&[]).await;
    let metadata = |issuer: &str| oidc_config("idp", json!({"issuer": issuer}));
    let mut cluster = oidc_config("idp", json!({}));
    cluster["spec"] = json!({"type": "kubernetesServiceAccount", "kubernetesServiceAccount": {"jwksUrl": "keys"}});
    let cases = [
        (metadata("idp.example.com"), "spec.inline.issuer"),
        (metadata("http://idp.example.com"), "spec.inline.issuer"),
        (metadata("https://169.254.169.254/"), "spec.inline.issuer"),
        (metadata("https://127.0.0.1/"), "spec.inline.issuer"),
        (oidc_config("idp", json!({"jwksUrl": "https://10.0.0.1/k"})), "spec.inline.jwksUrl"),
        (oidc_config("idp", json!({"introspectionUrl": "ftp://idp"})), "spec.inline.introspectionUrl"),
        (cluster, "spec.kubernetesServiceAccount.jwksUrl"),
        (refers("web", json!({"resourceUrl": "mcp.example.com"})), "spec.oidcConfigRef.resourceUrl"),
        (refers("web", json!({"scopes": ["a b"]})), "spec.oidcConfigRef.scopes[0]"),
        // The schema says it.
        (refers("web", json!({"audience": ""})), "spec.oidcConfigRef.audience"),
    ];
    for (object, field) in cases {
        let answer = gate.objects.post(object.clone(), true).await;
        assert_eq!(answer.code, 422, "{object}: {}", answer.body);
        assert!(fields(&answer.body).contains(&field), "{field} not in {}", answer.body);
    }
    let missing = json!({
        "clientSecretRef": {"name": "absent", "key": "k"}, "caBundleRef": {"configMapRef": {"name": "absent-ca", "key": ""}},
    });
    let cases = [
        (oidc_config("fine", json!({})), vec![]),
        (
            oidc_config("warned", json!({"issuer": "http://idp.example.com", "insecureAllowHTTP": true})),
            vec!["spec.inline.insecureAllowHTTP: whoever is on the way"],
        ),
        (
            oidc_config("missing", missing),
            vec![
                "spec.inline.clientSecretRef: has no effect without clientId",
                "spec.inline.clientSecretRef: Secret \"absent\" does not exist yet",
                "spec.inline.caBundleRef.configMapRef: ConfigMap \"absent-ca\" does not exist yet",
            ],
        ),
        (
            refers("early", json!({})),
            vec!["spec.oidcConfigRef: MCPOIDCConfig \"idp\" does not exist yet; without it the server gets no proxy"],
        ),
    ];
    for (object, warnings) in cases {
        let answer = gate.objects.post(object, false).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        assert_eq!(answer.warnings.len(), warnings.len(), "{:?}", answer.warnings);
        for (said, words) in answer.warnings.iter().zip(warnings) {
            assert!(said.contains(words), "{words} not in {said}");
        }
    }
    operator.terminate().await;

    let _operator = gate.serving(&["--allow-endpoint-cidr", "127.0.0.0/8,::1/128"]).await;
    let here = oidc_config("here", json!({"issuer": "http://127.0.0.1:9998/", "insecureAllowHTTP": true}));
    let answer = gate.objects.post(here, true).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}
