//! What is said at `kubectl apply` of MCPToolConfig, and of what a server asks for without effect.

use serde_json::json;

use super::{
    Gate, fields,
    support::{labelled, tool_config},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_config_that_can_never_work_is_refused_with_its_field() {
    let gate = Gate::new("tools").await;
    let _operator = gate.serving(&[]).await;
    let cases = [
        (json!({"toolsFilter": ["a", ""]}), "spec.toolsFilter[1]"),
        (json!({"toolsFilter": ["a,b"]}), "spec.toolsFilter[0]"),
        (json!({"toolsOverride": {"a": {}}}), "spec.toolsOverride[a]"),
        (json!({"toolsOverride": {"a": {"name": "x\n"}}}), "spec.toolsOverride[a].name"),
        (json!({"toolsOverride": {"a": {"name": "x"}, "b": {"name": "x"}}}), "spec.toolsOverride[b].name"),
    ];
    for (spec, field) in cases {
        let answer = gate.objects.post(tool_config("tools", spec.clone()), false).await;
        assert_eq!(answer.code, 422, "{spec}: {}", answer.body);
        assert!(fields(&answer.body).contains(&field), "{field} not in {}", answer.body);
    }
    let fine = gate.objects.post(tool_config("tools", json!({"toolsFilter": ["a"]})), false).await;
    assert_eq!((fine.code, fine.warnings), (201, Vec::new()), "{}", fine.body);
    let refused = gate.objects.patch("MCPToolConfig", "tools", json!({"spec": {"toolsFilter": [""]}})).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_exist_or_has_no_effect_is_admitted_with_a_warning() {
    let gate = Gate::new("tools-warned").await;
    let _operator = gate.serving(&[]).await;
    gate.objects.create(tool_config("there", json!({"toolsFilter": ["a"]}))).await;
    let template = json!({"spec": {"nodeSelecter": {"a": "b"}, "nodeSelector": {"disk": "ssd"}}});
    let annotated = json!({"toolsOverride": {"a": {"name": "b", "annotations": {"title": "t"}}}});
    let missing =
        "spec.toolConfigRef: MCPToolConfig \"absent\" does not exist yet; without it the server gets no proxy";
    let other = "spec.externalAuthConfigRef: MCPExternalAuthConfig \"idp\" does not exist yet; without it the server gets no proxy";
    let both = json!({"toolConfigRef": {"name": "absent"}, "externalAuthConfigRef": {"name": "idp"}});
    let cases = [
        (labelled("missing", json!({"toolConfigRef": {"name": "absent"}})), vec![missing]),
        (labelled("both", both), vec![missing, other]),
        (labelled("found", json!({"toolConfigRef": {"name": "there"}})), Vec::new()),
        (tool_config("annotated", annotated), vec!["spec.toolsOverride[a].annotations has no effect in this version"]),
        (
            labelled("profile", json!({"permissionProfile": {"type": "builtin", "name": "network"}})),
            vec!["spec.permissionProfile is deprecated and unsupported by the Kubernetes operator; it has no effect"],
        ),
        (
            labelled("template", json!({"podTemplateSpec": template})),
            vec![
                "spec.podTemplateSpec.spec.nodeSelecter is not a field of a pod that this version knows, and has no effect",
            ],
        ),
    ];
    for (object, warnings) in cases {
        let answer = gate.objects.post(object, false).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        let said: Vec<_> = warnings.iter().map(|warning| format!("299 - \"{warning}\"")).collect();
        assert_eq!(answer.warnings, said);
    }
}
