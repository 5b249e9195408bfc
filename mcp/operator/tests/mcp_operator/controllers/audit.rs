//! `spec.audit` on the API server.

use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::{
    Place,
    support::{Operator, labelled, remote_proxy, tool_config},
};

/// Adding, changing and removing `spec.audit` rolls the Deployment of a guarded server, and of a guarded remote proxy,
/// without making it anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_is_turned_on_and_off_with_the_deployment_in_its_place() {
    let place = Place::new("audit").await;
    let (objects, namespace) = (&place.objects, place.namespace());
    let flags = ["--watch-namespace", namespace, "--bind", "127.0.0.1:0"];
    let _operator = Operator::start_with(&place.user, namespace, &flags);
    objects.create(tool_config("tools", json!({"toolsFilter": ["echo"]}))).await;
    let guard = json!({"toolConfigRef": {"name": "tools"}});
    objects.create(labelled("pod", guard.clone())).await;
    objects.create(remote_proxy("far", guard)).await;

    for (kind, name) in [("MCPServer", "pod"), ("MCPRemoteProxy", "far")] {
        let api_version = "toolhive.stacklok.dev/v1beta1";
        let made = objects.child(ChildKind::Deployment, name, "to exist", |it| !it.is_null()).await;
        let made = |found: &Value| found["metadata"]["uid"] == made["metadata"]["uid"];
        for (audit, is_on) in [
            (json!({"enabled": true}), true),
            (json!({"enabled": false}), false),
            (json!({"enabled": true}), true),
            (Value::Null, false),
        ] {
            objects.merge(api_version, kind, name, json!({"spec": {"audit": audit}})).await;
            let what = format!("of {name} to have audit {audit}");
            let document = objects
                .child(ChildKind::ConfigMap, &format!("{name}-runconfig"), &what, |it| {
                    it["data"]["runconfig.json"].as_str().is_some_and(|text| text.contains("audit_config") == is_on)
                })
                .await;
            let checksum = &document["metadata"]["annotations"]["toolhive.stacklok.dev/content-checksum"];
            let told = "/spec/template/metadata/annotations/toolhive.stacklok.dev~1runconfig-checksum";
            let rolled =
                objects.child(ChildKind::Deployment, name, &what, |it| it.pointer(told) == Some(checksum)).await;
            assert!(made(&rolled), "{what}: it is another one");
        }
        let events = objects.events(kind, name).await;
        assert!(!events.iter().any(|event| event.contains("ProxyRemoved")), "{events:?}");
    }
}
