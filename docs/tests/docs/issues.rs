//! Issues of other SDKs' users that must not occur here: the rows of `src/reference/issues.md` that no test of the SDK
//! is named after.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use portcullis::manifest::{ServiceRef, mutating_configuration};
use portcullis::webhooks::{Context, Mutate, Mutation, Scale, Validate, Verdict, Webhooks};
use portcullis_testing::admission::Reviews;
use serde_json::json;

/// Issue 9: `kubectl scale` sends a Scale, and rules have to name the subresource in the group of the kind.
#[tokio::test]
async fn a_scale_is_not_decoded_as_the_kind_that_it_scales() {
    let judge = |_: Arc<Scale>, new: Arc<Scale>, _: Context| async move {
        let replicas = new.spec.as_ref().and_then(|spec| spec.replicas);
        if replicas > Some(5) { Verdict::deny("five at most").code(422) } else { Verdict::allow() }
    };
    let webhook = Validate::<Scale>::subresource_of::<Deployment>("replicas", "scale").on_update(judge);
    let webhooks = Webhooks::new().validate(webhook);
    let rule = &webhooks.manifests().unwrap()[0].rules[0];
    assert_eq!((&*rule.groups[0], &*rule.resources[0]), ("apps", "deployments/scale"));
    let scale = |replicas: u8| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}});
    let reviews = Reviews::new(&webhooks).unwrap();
    let answer = reviews.update(&scale(1), &scale(6)).sub_resource("scale").validate("replicas").await;
    answer.assert_denied(422, "five at most");
}

/// Issue 22: selectors could not be said in code, and names were fixed.
#[test]
fn no_selector_and_no_name_has_to_be_patched_into_a_manifest() {
    let labels = |key: &str| LabelSelector {
        match_labels: Some([(key.to_owned(), String::new())].into()),
        ..Default::default()
    };
    let webhook = Mutate::<ConfigMap>::new("one")
        .path("/elsewhere")
        .namespace_selector(labels("namespace"))
        .object_selector(labels("object"))
        .match_condition("some", "object.data.size() > 0")
        .on_create(|_: ConfigMap, _: Context| async { Mutation::unchanged() });
    let entries = Webhooks::new().mutate(webhook).manifests().unwrap();
    let service = ServiceRef { namespace: "here".into(), name: "mine".into(), port: 8443 };
    let written = serde_json::to_value(mutating_configuration("any-name", &entries, &service)).unwrap();
    let entry = &written["webhooks"][0];
    assert_eq!(written["metadata"]["name"], "any-name");
    let service = json!({"namespace": "here", "name": "mine", "port": 8443, "path": "/elsewhere"});
    assert_eq!(entry["clientConfig"]["service"], service);
    assert_eq!(entry["namespaceSelector"], json!({"matchLabels": {"namespace": ""}}));
    assert_eq!(entry["objectSelector"], json!({"matchLabels": {"object": ""}}));
    assert_eq!(entry["matchConditions"], json!([{"name": "some", "expression": "object.data.size() > 0"}]));
}
