//! Both versions of a kind, the defaults and the explanations, as a client of the API server sees them.

use kube::{
    api::{Api, DeleteParams, ListParams, PostParams},
    client::Body,
};
use mcp_api::{
    v1alpha1::{FailurePolicy, MCPWebhookConfig},
    v1beta1::{MCPServer, MCPServerSpec, PermissionProfileType},
};
use serde_json::{Value, json};

use crate::contract::api_server::Judge;

#[tokio::test]
async fn an_object_made_as_v1alpha1_draws_the_deprecation_warning_and_is_read_as_v1beta1() {
    let judge = Judge::in_namespace("versions").await;
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1",
        "kind": "MCPServer",
        "metadata": {"name": "older"},
        // A member that v1alpha1 once had is dropped with a warning.
        "spec": {"image": "registry.example/server:1", "targetPort": 8080},
    });
    let path = format!("/apis/toolhive.stacklok.dev/v1alpha1/namespaces/{}/mcpservers", judge.namespace);
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(serde_json::to_vec(&object).unwrap())).unwrap();
    let response = judge.client.send(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    let expected = [
        r#"299 - "toolhive.stacklok.dev/v1alpha1 is deprecated; use v1beta1""#,
        r#"299 - "unknown field \"spec.targetPort\"""#,
    ];
    assert_eq!(warnings, expected);

    let servers: Api<MCPServer> = Api::namespaced(judge.client.clone(), &judge.namespace);
    let server = servers.get("older").await.unwrap();
    assert_eq!(server.spec, MCPServerSpec { image: "registry.example/server:1".into(), ..MCPServerSpec::default() });
}

#[tokio::test]
async fn an_object_without_a_spec_is_admitted_and_does_not_break_a_list() {
    let judge = Judge::in_namespace("no-spec").await;
    let servers: Api<MCPServer> = Api::namespaced(judge.client.clone(), &judge.namespace);
    let path = format!("/apis/toolhive.stacklok.dev/v1beta1/namespaces/{}/mcpservers", judge.namespace);
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": {"name": "empty"},
    });
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(&object).unwrap()).unwrap();
    let _: Value = judge.client.request(request).await.unwrap();
    let listed = servers.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(listed.items[0].spec, MCPServerSpec::default());
    servers.delete("empty", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn defaults_are_the_api_server_s_and_the_types_agree_with_them() {
    let judge = Judge::in_namespace("defaults").await;
    let least = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1",
        "kind": "MCPServer",
        "metadata": {"name": "least"},
        "spec": {
            "image": "registry.example/server:1",
            "audit": {},
            "authServerRef": {"name": "auth"},
            "authzConfig": {"configMap": {"name": "policies"}},
            "permissionProfile": {"name": "none"},
            "resourceOverrides": {"proxyDeployment": {"imagePullSecrets": [{}]}},
            "sessionStorage": {"provider": "memory"},
            "volumes": [{"name": "data", "hostPath": "/srv", "mountPath": "/data"}],
        },
    });
    let stored = judge.create("MCPServer", &least).await.unwrap();
    for (pointer, value) in [
        ("/spec/transport", json!("stdio")),
        ("/spec/proxyMode", json!("streamable-http")),
        ("/spec/proxyPort", json!(8080)),
        ("/spec/sessionAffinity", json!("ClientIP")),
        ("/spec/trustProxyHeaders", json!(false)),
        ("/spec/audit/enabled", json!(false)),
        ("/spec/authServerRef/kind", json!("MCPExternalAuthConfig")),
        ("/spec/authzConfig/type", json!("configMap")),
        ("/spec/authzConfig/configMap/key", json!("authz.json")),
        ("/spec/permissionProfile/type", json!("builtin")),
        ("/spec/resourceOverrides/proxyDeployment/imagePullSecrets/0/name", json!("")),
        ("/spec/sessionStorage/db", json!(0)),
        ("/spec/volumes/0/readOnly", json!(false)),
    ] {
        assert_eq!(stored.pointer(pointer), Some(&value), "{pointer}");
    }
    // What was never stored, decoded here, is what the API server makes of it.
    let [ours, theirs] = [&least, &stored].map(|object| serde_json::from_value::<MCPServer>(object.clone()).unwrap());
    assert_eq!(ours.spec, theirs.spec);
    assert_eq!(ours.spec.permission_profile.unwrap().kind, PermissionProfileType::Builtin);

    let gate = json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1",
        "kind": "MCPWebhookConfig",
        "metadata": {"name": "least"},
        "spec": {"mutating": [{"name": "m", "url": "https://m.example"}]},
    });
    let stored = judge.create("MCPWebhookConfig", &gate).await.unwrap();
    assert_eq!(stored["spec"]["mutating"][0]["failurePolicy"], "fail");
    let typed: MCPWebhookConfig = serde_json::from_value(gate).unwrap();
    assert_eq!(typed.spec.mutating.unwrap()[0].failure_policy, FailurePolicy::Fail);
}

#[tokio::test]
async fn manifests_of_older_versions_are_admitted_and_several_keys_of_one_secret_are_too() {
    let judge = Judge::in_namespace("older").await;
    let key = |name: &str, key: &str| json!({"name": name, "key": key});
    let cases = [
        ("one key", json!({"secrets": [key("a", "token")]}), true),
        ("one key of each Secret", json!({"secrets": [key("a", "token"), key("b", "token")]}), true),
        ("two keys of one Secret", json!({"secrets": [key("a", "token"), key("a", "password")]}), true),
        ("one key twice", json!({"secrets": [key("a", "token"), key("a", "token")]}), false),
        ("a permission profile", json!({"permissionProfile": {"type": "builtin", "name": "network"}}), true),
        ("a profile of the user's", json!({"permissionProfile": {"type": "configmap", "name": "p", "key": "k"}}), true),
        ("Redis without TLS", json!({"sessionStorage": {"provider": "redis", "address": "redis:6379", "db": 0}}), true),
    ];
    for (what, mut spec, admitted) in cases {
        spec["image"] = json!("registry.example/server:1");
        for version in ["v1alpha1", "v1beta1"] {
            let path =
                format!("/apis/toolhive.stacklok.dev/{version}/namespaces/{}/mcpservers?dryRun=All", judge.namespace);
            let object = json!({
                "apiVersion": format!("toolhive.stacklok.dev/{version}"), "kind": "MCPServer",
                "metadata": {"name": "older"}, "spec": spec,
            });
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(serde_json::to_vec(&object).unwrap()).unwrap();
            let answer = judge.client.request::<Value>(request).await;
            assert_eq!(answer.is_ok(), admitted, "{what} in {version}: {answer:?}");
            let Ok(stored) = answer else { continue };
            let typed: MCPServer = serde_json::from_value(stored).unwrap();
            let kept = serde_json::to_value(typed.spec).unwrap();
            for (member, value) in spec.as_object().unwrap() {
                assert_eq!(&kept[member], value, "{what} in {version}");
            }
        }
    }
}

#[tokio::test]
async fn a_typed_object_passes_through_the_api_server_unchanged() {
    let judge = Judge::in_namespace("typed").await;
    let servers: Api<MCPServer> = Api::namespaced(judge.client.clone(), &judge.namespace);
    let spec: MCPServerSpec =
        serde_json::from_value(crate::contract::examples::of("MCPServer")[0]["spec"].clone()).unwrap();
    let stored = servers.create(&PostParams::default(), &MCPServer::new("typed", spec.clone())).await.unwrap();
    assert_eq!(stored.spec, spec);
    assert_eq!(serde_json::to_value(&stored.spec).unwrap(), crate::contract::examples::of("MCPServer")[0]["spec"]);
}

#[tokio::test]
async fn kubectl_explain_finds_our_words_in_both_versions() {
    let judge = Judge::in_namespace("explain").await;
    for (version, kind) in [
        ("v1alpha1", "MCPExternalAuthConfig"),
        ("v1beta1", "MCPExternalAuthConfig"),
        ("v1alpha1", "MCPOIDCConfig"),
        ("v1beta1", "MCPOIDCConfig"),
        ("v1alpha1", "MCPRemoteProxy"),
        ("v1beta1", "MCPRemoteProxy"),
        ("v1alpha1", "MCPServer"),
        ("v1beta1", "MCPServer"),
        ("v1alpha1", "MCPToolConfig"),
        ("v1beta1", "MCPToolConfig"),
        ("v1alpha1", "MCPWebhookConfig"),
        ("v1alpha1", "VirtualMCPServer"),
        ("v1beta1", "VirtualMCPServer"),
    ] {
        let path = format!("/openapi/v3/apis/toolhive.stacklok.dev/{version}");
        let explained =
            portcullis_testing::wait_until("published schema", std::time::Duration::from_mins(1), || async {
                let request = http::Request::get(&path).body(Vec::new()).unwrap();
                let document: Value = judge.client.request(request).await.ok()?;
                let schema = &document["components"]["schemas"][format!("dev.stacklok.toolhive.{version}.{kind}")];
                schema.is_object().then(|| schema.clone())
            })
            .await;
        for member in ["apiVersion", "kind", "metadata", "spec", "status"] {
            let text = explained["properties"][member]["description"].as_str();
            // The API server puts its own reference beside the description of `metadata`.
            assert!(text.is_some() || member == "metadata", "{kind} {version}: {member} is not explained");
        }
        let crds = mcp_api::crds();
        let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let ours = crd.spec.versions.iter().find(|ours| ours.name == version).unwrap();
        let ours = serde_json::to_value(ours).unwrap();
        let properties = &ours["schema"]["openAPIV3Schema"]["properties"];
        for (member, our) in properties["spec"]["properties"].as_object().unwrap() {
            let published = &explained["properties"]["spec"]["properties"][member]["description"];
            assert_eq!(published, &our["description"], "{kind} {version}: spec.{member}");
        }
    }
}
