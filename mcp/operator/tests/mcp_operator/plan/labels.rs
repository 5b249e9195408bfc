//! Labels by which pods are selected: users' values for them have no effect.

use kube::core::object::HasStatus;
use mcp_api::v1beta1::{MCPRemoteProxy, MCPServer};
use mcp_operator::{subject::Subject as _, workload::Workload};
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::world::{Plan, World, condition};

const OVERRIDES: &str = "spec.resourceOverrides.proxyDeployment.podTemplateMetadataOverrides.labels";
const TEMPLATE: &str = "spec.podTemplateSpec.metadata.labels";

fn overrides(labels: &Value) -> Value {
    json!({"resourceOverrides": {"proxyDeployment": {"podTemplateMetadataOverrides": {"labels": labels}}}})
}

fn template(labels: &Value) -> Value {
    json!({"podTemplateSpec": {"metadata": {"labels": labels}}})
}

fn workload<W: Workload>(spec: Value, change: Value) -> World<W>
where
    W::Status: Clone,
{
    let mut object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": W::kind(&()),
        "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 1}, "spec": spec,
    });
    object["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    World::around(object)
}

/// The labels of all pods that are planned, by the kinds that make them.
fn labels<W: HasStatus>(plan: &Plan<W>) -> Vec<(ChildKind, Value)> {
    let templates = plan.children.iter().filter_map(|child| {
        let labels = child.object.pointer("/spec/template/metadata/labels")?;
        Some((child.reference.kind, labels.clone()))
    });
    templates.collect()
}

fn holds<W: Workload>(spec: &Value)
where
    W::Status: Clone,
{
    let expected = labels(&workload::<W>(spec.clone(), json!({})).plan());
    assert!(!expected.is_empty());
    for key in [
        "app",
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
        "toolhive",
        "toolhive-name",
        "toolhive-basename",
    ] {
        for (field, change) in
            [(OVERRIDES, overrides(&json!({key: "mcpserver"}))), (TEMPLATE, template(&json!({key: "mcpserver"})))]
        {
            let world = workload::<W>(spec.clone(), change);
            let plan = world.plan();
            assert_eq!(labels(&plan), expected, "{field}[{key}]");
            let said = format!("{field}[{key}] has no effect: the operator selects pods by this label");
            let warnings = world.workload.warnings(&world.settings);
            assert!(warnings.contains(&said), "{warnings:?}");
            if field == TEMPLATE {
                assert!(condition(&plan, "PodTemplateValid", "True").unwrap().1.contains(&said));
            }
        }
    }
}

// Security S14: the Service mcp-mcpserver selects app=mcpserver, toolhive-basename=mcpserver.
#[test]
fn a_users_label_moves_no_pod_under_another_selector() {
    holds::<MCPServer>(&json!({"image": "x:1", "transport": "streamable-http"}));
    holds::<MCPRemoteProxy>(&json!({"remoteUrl": "https://mcp.example.com/mcp"}));
}

#[test]
fn other_labels_of_users_reach_the_pods_without_a_warning() {
    let (own, spec) = (json!({"team": "a", "toolhive-mine": "b"}), json!({"image": "x:1"}));
    let world = workload::<MCPServer>(spec.clone(), overrides(&own));
    let has_all = |labels: &Value| own.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value);
    assert!(labels(&world.plan()).iter().any(|(kind, labels)| *kind == ChildKind::Deployment && has_all(labels)));
    assert!(world.workload.warnings(&world.settings).is_empty());
    let world = workload::<MCPServer>(spec, template(&own));
    assert!(labels(&world.plan()).iter().any(|(kind, labels)| *kind == ChildKind::StatefulSet && has_all(labels)));
    assert!(world.workload.warnings(&world.settings).is_empty());
}
