//! Refusals and warnings at `kubectl apply` of who may call what: of an MCPAuthzConfig, of policies in a spec, and of those in a
//! ConfigMap.

use serde_json::{Value, json};

use super::{
    Gate, fields,
    support::{Objects, authz_config, labelled, policies, remote_proxy, virtual_server},
};

const PERMIT: &str = "permit(principal, action, resource);";
/// The second line has a word that Cedar does not know.
const BROKEN: &str = "permit(principal,\n  actoin, resource);";
const WHERE: &str = "is not one Cedar policy: line 2, column 3: ";

fn in_spec(policy: &str) -> Value {
    json!({"authzConfig": {"type": "inline", "inline": {"policies": [PERMIT, policy]}}})
}

fn in_config_map(name: &str) -> Value {
    json!({"authzConfig": {"type": "configMap", "configMap": {"name": name}}})
}

fn virtual_one(name: &str, policy: &str) -> Value {
    let mut server = virtual_server(name, "absent", "absent");
    server["spec"]["incomingAuth"]["authzConfig"] = in_spec(policy)["authzConfig"].clone();
    server
}

/// It is refused for this field, with line and column.
async fn refused(objects: &Objects, object: Value, field: &str) {
    let answer = objects.post(object.clone(), false).await;
    assert_eq!(answer.code, 422, "{object}: {}", answer.body);
    assert!(fields(&answer.body).contains(&field), "{field} not in {}", answer.body);
    assert!(answer.body["message"].as_str().unwrap().contains(WHERE), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_do_not_parse_are_refused_with_line_and_column_where_they_change() {
    let gate = Gate::new("policies").await;
    let _operator = gate.serving(&[]).await;
    let objects = &gate.objects;
    let inline = "spec.authzConfig.inline.policies[1]";
    refused(objects, authz_config("rules", &[PERMIT, BROKEN]), "spec.config.policies[1]").await;
    refused(objects, labelled("web", in_spec(BROKEN)), inline).await;
    refused(objects, remote_proxy("far", in_spec(BROKEN)), inline).await;
    refused(objects, virtual_one("all", BROKEN), "spec.incomingAuth.authzConfig.inline.policies[1]").await;
    // For Cedar a comment ends at a carriage return, and its parser at the end of its stack.
    let deep =
        format!("permit(principal, action, resource) when {{ //\r{}1{} }};", "(".repeat(9_999), ")".repeat(9_999));
    let answer = objects.post(authz_config("rules", &[PERMIT, &deep]), false).await;
    assert!(answer.code == 422 && fields(&answer.body) == ["spec.config.policies[1]"], "{}", answer.body);
    let long = format!("{PERMIT}{}", " ".repeat(8192));
    let answer = objects.post(remote_proxy("far", in_spec(&long)), false).await;
    assert!(answer.code == 422 && fields(&answer.body) == [inline], "{}", answer.body);

    for object in [authz_config("rules", &[PERMIT]), labelled("web", in_spec(PERMIT)), labelled("long", in_spec(&long))]
    {
        let answer = objects.post(object, false).await;
        assert!(answer.code == 201 && answer.warnings.is_empty(), "{:?} {}", answer.warnings, answer.body);
    }
    let examples = [
        include_str!("../../../../../examples/policies.yaml"),
        include_str!("../../../../../examples/webhooks-tried.yaml"),
    ];
    for document in examples.iter().flat_map(|example| example.split("\n---\n")) {
        let answer = objects.post(serde_saphyr::from_str(document).unwrap(), false).await;
        assert!(answer.code == 201 && answer.warnings.is_empty(), "{:?} {}", answer.warnings, answer.body);
    }
    let edits = [
        ("MCPServer", "web", json!({"spec": in_spec(BROKEN)}), 422),
        ("MCPServer", "web", json!({"spec": {"args": ["--other"]}}), 200),
        ("MCPAuthzConfig", "rules", json!({"spec": {"config": {"policies": [BROKEN]}}}), 422),
        ("MCPAuthzConfig", "rules", json!({"metadata": {"labels": {"a": "b"}}}), 200),
    ];
    for (kind, name, patch, code) in edits {
        let answer = objects.patch(kind, name, patch.clone()).await;
        assert_eq!(answer.code, code, "{patch}: {}", answer.body);
    }
}

/// Stored before there was a webhook: what else of it changes passes, and its status says what is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_policies_that_do_not_parse_let_other_edits_pass() {
    let gate = Gate::new("stored-policies").await;
    gate.objects.create(labelled("web", in_spec(BROKEN))).await;
    gate.objects.create(authz_config("rules", &[BROKEN])).await;
    let _operator = gate.serving(&[]).await;
    let answer = gate.objects.patch("MCPServer", "web", json!({"spec": {"args": ["--other"]}})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let says = |kind: &str, type_: &str, of: &Value| {
        let mut conditions = of["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.find(|it| it["type"] == type_ && it["status"] == "False");
        found.is_some_and(|it| it["message"].as_str().unwrap().contains(WHERE)) || panic!("{kind}: {of}")
    };
    let told = |kind: &'static str, name: &'static str, type_: &'static str| {
        let api = gate.objects.dynamic("toolhive.stacklok.dev/v1beta1", kind);
        async move {
            let seen = |object: &kube::api::DynamicObject| object.data["status"]["conditions"].is_array();
            let found = portcullis_testing::wait_for_object(&api, name, "conditions", super::DEADLINE, seen).await;
            says(kind, type_, &found.data);
        }
    };
    told("MCPServer", "web", "AuthzConfigValidated").await;
    told("MCPAuthzConfig", "rules", "Valid").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_map_that_cannot_be_used_is_a_warning_at_the_workload() {
    let gate = Gate::new("policy-map").await;
    let _operator = gate.serving(&[]).await;
    let objects = &gate.objects;
    objects.create(policies("fine", &[PERMIT])).await;
    objects.create(policies("broken", &[PERMIT, BROKEN])).await;
    objects
        .create(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}, "data": {"other.json": "{}"},
        }))
        .await;
    let field = "spec.authzConfig.configMap";
    for (map, warning) in [
        ("fine", None),
        ("broken", Some(format!("{field}: ConfigMap broken/authz.json: cedar.policies[1]: {WHERE}"))),
        ("other", Some(format!("{field}: ConfigMap \"other\" has no key \"authz.json\"; add it"))),
        (
            "absent",
            Some(format!("{field}: ConfigMap \"absent\" does not exist yet; without it the server gets no proxy")),
        ),
    ] {
        for object in [labelled(map, in_config_map(map)), remote_proxy(&format!("far-{map}"), in_config_map(map))] {
            let answer = objects.post(object, false).await;
            assert_eq!(answer.code, 201, "{}", answer.body);
            assert_eq!(answer.warnings.len(), usize::from(warning.is_some()), "{map}: {:?}", answer.warnings);
            for (found, wanted) in answer.warnings.iter().zip(&warning) {
                assert!(found.contains(wanted), "{found} / {wanted}");
            }
        }
    }
}
