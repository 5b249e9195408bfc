//! What is said at `kubectl apply` of MCPRemoteProxy.

use portcullis_testing::wait_until;
use serde_json::json;

use super::{
    Gate, fields,
    support::{DEADLINE, minimal, remote_proxy},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_can_never_work_is_refused_with_its_field() {
    let gate = Gate::new("remote").await;
    let _operator = gate.serving(&["--kubernetes-api", "10.96.0.1"]).await;
    let plain = |name: &str| json!({"headerForward": {"addPlaintextHeaders": {name: "a"}}});
    let key = json!({"name": "keys", "key": "api"});
    let twice = json!({"headerForward": {
        "addPlaintextHeaders": {"x-key": "a"}, "addHeadersFromSecret": [{"headerName": "X-Key", "valueSecretRef": key}]}});
    let headers = "spec.headerForward";
    let cases = [
        (json!({"remoteUrl": "http://127.0.0.1:3000/mcp"}), "spec.remoteUrl".to_owned()),
        (json!({"remoteUrl": "http://localhost/mcp", "allowPrivateEndpoint": true}), "spec.remoteUrl".to_owned()),
        (json!({"remoteUrl": "http://169.254.169.254/", "allowPrivateEndpoint": true}), "spec.remoteUrl".to_owned()),
        (json!({"remoteUrl": "http://10.0.0.1/mcp"}), "spec.remoteUrl".to_owned()),
        (json!({"remoteUrl": "https://10.96.0.1", "allowPrivateEndpoint": true}), "spec.remoteUrl".to_owned()),
        (json!({"remoteUrl": "https://user@mcp.example.com"}), "spec.remoteUrl".to_owned()),
        (plain("Host"), format!("{headers}.addPlaintextHeaders[Host]")),
        (plain("X-Forwarded-For"), format!("{headers}.addPlaintextHeaders[X-Forwarded-For]")),
        (twice, format!("{headers}.addHeadersFromSecret[0].headerName")),
        (json!({"podTemplateSpec": {"spec": {"$patch": "replace"}}}), "spec.podTemplateSpec.spec.$patch".to_owned()),
        (json!({"resources": {"limits": {"cpu": "lots"}}}), "spec.resources.limits.cpu".to_owned()),
    ];
    for (spec, field) in cases {
        let answer = gate.objects.post(remote_proxy("web", spec.clone()), false).await;
        assert_eq!(answer.code, 422, "{spec}: {}", answer.body);
        assert!(fields(&answer.body).contains(&&*field), "{field} not in {}", answer.body);
    }
    let private = remote_proxy("web", json!({"remoteUrl": "http://10.0.0.1/mcp", "allowPrivateEndpoint": true}));
    let fine = gate.objects.post(private, false).await;
    assert_eq!((fine.code, fine.warnings), (201, Vec::new()), "{}", fine.body);
    let refused = gate.objects.patch("MCPRemoteProxy", "web", json!({"spec": {"remoteUrl": "http://[::1]"}})).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_that_the_operator_was_told_to_allow_count_as_public() {
    let gate = Gate::new("remote-exempt").await;
    let _operator = gate.serving(&["--allow-endpoint-cidr", "127.0.0.0/8,10.1.0.0/16"]).await;
    for (url, code) in [
        ("http://127.0.0.1:3000/mcp", 201),
        ("http://localhost:3000/mcp", 201),
        ("http://10.1.2.3", 201),
        ("http://10.2.0.1", 422),
        ("http://169.254.169.254", 422),
    ] {
        let answer = gate.objects.post(remote_proxy("web", json!({"remoteUrl": url})), true).await;
        assert_eq!(answer.code, code, "{url}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_is_warned_of_what_does_not_exist_or_is_not_built() {
    let gate = Gate::new("remote-warned").await;
    let _operator = gate.serving(&[]).await;
    let header = json!([{"headerName": "X-Key", "valueSecretRef": {"name": "absent", "key": "api"}}]);
    let no_proxy = "does not exist yet; without it the server gets no proxy";
    for (name, spec, warning) in [
        (
            "tools",
            json!({"toolConfigRef": {"name": "absent"}}),
            format!("spec.toolConfigRef: MCPToolConfig \"absent\" {no_proxy}"),
        ),
        (
            "login",
            json!({"oidcConfigRef": {"name": "absent", "audience": "a"}}),
            format!("spec.oidcConfigRef: MCPOIDCConfig \"absent\" {no_proxy}"),
        ),
        (
            "secret",
            json!({"headerForward": {"addHeadersFromSecret": header}}),
            format!("spec.headerForward.addHeadersFromSecret[0].valueSecretRef: Secret \"absent\" {no_proxy}"),
        ),
        (
            "tokens",
            json!({"externalAuthConfigRef": {"name": "e"}}),
            format!("spec.externalAuthConfigRef: MCPExternalAuthConfig \"e\" {no_proxy}"),
        ),
        (
            "template",
            json!({"podTemplateSpec": {"spec": {"containers": [{"name": "toolhive", "image": "other"}]}}}),
            "spec.podTemplateSpec.spec.containers[0].image has no effect: the operator decides it".to_owned(),
        ),
    ] {
        let answer = gate.objects.post(remote_proxy(name, spec), false).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        assert_eq!(answer.warnings, [format!("299 - \"{warning}\"")]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_is_warned_of_another_whose_children_have_the_same_names() {
    let gate = Gate::new("remote-shared").await;
    let _operator = gate.serving(&[]).await;
    let fine = gate.objects.post(minimal("web"), false).await;
    assert_eq!((fine.code, fine.warnings), (201, Vec::new()), "{}", fine.body);
    let warning = "299 - \"metadata.name: MCPServer \"web\" may have Deployment web, ConfigMap web-runconfig as well, and only \
                   one of the two gets it; choose another name\"";
    // Known from a watch.
    wait_until("the warning", DEADLINE, || async {
        let answer = gate.objects.post(remote_proxy("web", json!({})), true).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        assert!(answer.warnings.is_empty() || answer.warnings == [warning], "{:?}", answer.warnings);
        (!answer.warnings.is_empty()).then_some(())
    })
    .await;
    let other = gate.objects.post(remote_proxy("far", json!({})), true).await;
    assert_eq!(other.warnings, Vec::<String>::new());
    // These two share more names: those of a Role and a RoleBinding, which a proxy only loses.
    let shares = gate.objects.post(minimal("far-remote"), true).await;
    assert_eq!(shares.warnings, Vec::<String>::new(), "the other is not stored");
    gate.objects.create(remote_proxy("far", json!({}))).await;
    let warning = "299 - \"metadata.name: MCPRemoteProxy \"far\" may have Service mcp-far-remote-proxy, ServiceAccount \
                   far-remote-proxy-runner as well, and only one of the two gets it; choose another name\"";
    wait_until("the warning", DEADLINE, || async {
        let answer = gate.objects.post(minimal("far-remote"), true).await;
        assert!(answer.warnings.is_empty() || answer.warnings == [warning], "{:?}", answer.warnings);
        (!answer.warnings.is_empty()).then_some(())
    })
    .await;
    // A name of its own children is no other's.
    let edited = gate.objects.patch("MCPServer", "web", json!({"spec": {"proxyPort": 9000}})).await;
    assert_eq!((edited.code, edited.warnings), (200, Vec::new()), "{}", edited.body);
}
