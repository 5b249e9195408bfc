//! What is said at `kubectl apply` of VirtualMCPServer.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    Gate, fields,
    support::{DEADLINE, tool_config},
};

fn virtual_server(name: &str, spec: &Value) -> Value {
    let mut all = json!({"groupRef": {"name": "group"}, "incomingAuth": {"type": "anonymous"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "VirtualMCPServer", "metadata": {"name": name}, "spec": all,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradictions_of_a_virtual_server_are_refused_with_the_field_and_missing_references_are_warned_of() {
    let gate = Gate::new("virtual").await;
    let _operator = gate.serving(&[]).await;
    let reference = json!({"name": "idp", "audience": "all"});
    let cases = [
        (json!({"incomingAuth": {"type": "anonymous", "oidcConfigRef": reference}}), "spec.incomingAuth.oidcConfigRef"),
        (
            json!({"outgoingAuth": {"default": {"type": "externalAuthConfigRef"}}}),
            "spec.outgoingAuth.default.externalAuthConfigRef",
        ),
        (
            json!({"config": {"aggregation": {"conflictResolution": "priority"}}}),
            "spec.config.aggregation.conflictResolutionConfig.priorityOrder",
        ),
    ];
    for (spec, field) in cases {
        let answer = gate.objects.post(virtual_server("all", &spec), false).await;
        assert_eq!(answer.code, 422, "{spec}: {}", answer.body);
        assert_eq!(fields(&answer.body), [field], "{}", answer.body);
    }

    gate.objects.create(tool_config("there", json!({"toolsFilter": ["a"]}))).await;
    let tools = json!([
        {"workload": "git", "toolConfigRef": {"name": "there"}}, {"workload": "web", "toolConfigRef": {"name": "absent"}},
    ]);
    let spec = json!({
        "incomingAuth": {"type": "oidc", "oidcConfigRef": reference}, "config": {"aggregation": {"tools": tools}},
    });
    // The operator hears of a config a moment after it was made.
    let heard = async {
        while gate.objects.post(virtual_server("all", &spec), true).await.warnings.len() > 3 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, heard).await.unwrap();
    let answer = gate.objects.post(virtual_server("all", &spec), false).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let warnings = [
        "this version checks what a VirtualMCPServer refers to and makes no Deployment for it: nothing serves",
        "spec.incomingAuth.oidcConfigRef: MCPOIDCConfig \"idp\" does not exist yet; until then the virtual server counts as failed",
        "spec.config.aggregation.tools[].toolConfigRef: MCPToolConfig \"absent\" does not exist yet; until then the virtual server counts as failed",
    ];
    assert_eq!(answer.warnings, warnings.map(|warning| format!("299 - \"{warning}\"")));
}
