//! What an author's template may say.

use mcp_plan::workload::pod_template::{Template, decode};
use serde_json::json;

#[test]
fn what_cannot_be_merged_is_refused_with_its_field() {
    let cases = [
        (json!([]), "spec.podTemplateSpec"),
        (json!({"spec": "x"}), "spec.podTemplateSpec.spec"),
        (
            json!({"spec": {"containers": [{"name": "mcp", "image": 1}]}}),
            "spec.podTemplateSpec.spec.containers[0].image",
        ),
        (json!({"spec": {"containers": [{"image": "x"}]}}), "spec.podTemplateSpec.spec.containers[0].name"),
        (json!({"spec": {"initContainers": [{"image": "x"}]}}), "spec.podTemplateSpec.spec.initContainers[0].name"),
        (json!({"spec": {"$patch": "replace"}}), "spec.podTemplateSpec.spec.$patch"),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
            "spec.podTemplateSpec.spec.containers[0].$patch",
        ),
        (json!({"spec": {"$setElementOrder/containers": []}}), "spec.podTemplateSpec.spec.$setElementOrder/containers"),
        (json!({"spec": {"nodeSelector": {"a": 1}}}), "spec.podTemplateSpec.spec.nodeSelector.a"),
    ];
    for (template, field) in cases {
        assert_eq!(decode(&template, "mcp").unwrap_err().field, field, "{template}");
    }
}

// Manifests that ToolHive takes are taken unchanged.
#[test]
fn a_field_that_is_not_known_is_named_and_keeps_nothing_else_from_its_place() {
    let template = json!({"spec": {
        "containers": [{"name": "mcp", "resources": {"limit": {"cpu": "1"}, "requests": {"cpu": "1"}}}],
        "nodeSelecter": {"a": "b"}, "nodeSelector": {"disk": "ssd"}, "empty": {},
    }});
    let Template { known, ignored } = decode(&template, "mcp").unwrap();
    assert_eq!(
        ignored,
        ["spec.podTemplateSpec.spec.containers[0].resources.limit", "spec.podTemplateSpec.spec.nodeSelecter",]
    );
    let spec = known.spec.unwrap();
    assert_eq!(spec.node_selector.unwrap()["disk"], "ssd");
    assert_eq!(spec.containers[0].resources.clone().unwrap().requests.unwrap()["cpu"].0, "1");
}

#[test]
fn nulls_empty_values_and_numeric_quantities_are_fine() {
    let template = json!({
        "metadata": {"creationTimestamp": null, "labels": {}},
        "spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": 1024}}, {"name": "t", "emptyDir": {}}],
            "containers": [{"name": "mcp", "args": [], "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}]},
    });
    let decoded = decode(&template, "mcp").unwrap().known.spec.unwrap();
    assert_eq!(decoded.containers[0].resources.clone().unwrap().limits.unwrap()["cpu"].0, "2");
    decode(&json!({}), "mcp").unwrap();
}
