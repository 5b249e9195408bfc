//! What went wrong for users of other SDKs, and must not happen here: the rows of `src/reference/issues.md` that no other
//! test has for its subject. Each test is named after what must not happen.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::ObjectMeta;
use portcullis::manifest::{ServiceRef, mutating_configuration};
use portcullis::webhooks::{Context, FailurePolicy, Mutate, Mutation, Scale, Validate, Verdict, Webhooks};
use portcullis_testing::admission::Reviews;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Sends a review as the API server does, and returns `response` of the answer.
async fn respond(webhooks: &Webhooks, path: &str, request: Value) -> Value {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let request = http::Request::post(path).header("content-type", "application/json");
    let answer = webhooks.routes().unwrap().respond(request.body(Full::from(review.to_string())).unwrap()).await;
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice::<Value>(&body).unwrap()["response"].take()
}

fn request_for_config_map(operation: &str) -> Value {
    json!({
        "uid": "1", "operation": operation, "name": "a", "namespace": "n", "userInfo": {"username": "alice"},
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
    })
}

/// Issue 5: the API server takes an answer of a validating webhook with a patch type for a failed call.
#[tokio::test]
async fn a_validating_answer_never_has_a_patch_type() {
    let judge = |new: Arc<ConfigMap>, _: Context| async move {
        if new.data.is_some() { Verdict::allow().warn("w").audit("a", "b") } else { Verdict::deny("no") }
    };
    let webhooks = Webhooks::new().validate(Validate::<ConfigMap>::named("judge").on_create(judge));
    for object in [json!({"data": {"a": "b"}}), json!({}), json!({"data": 5})] {
        let mut request = request_for_config_map("CREATE");
        request["object"] = object;
        let response = respond(&webhooks, "/validate/judge", request).await;
        assert_eq!((response.get("patch"), response.get("patchType")), (None, None), "{response}");
    }
}

/// Issue 6: a differ that calls share broke when they came at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mutations_at_the_same_time_do_not_get_into_each_others_patches() {
    let stamp = |mut new: ConfigMap, cx: Context| async move {
        tokio::task::yield_now().await;
        new.data = Some([(cx.name.unwrap(), cx.user.username)].into());
        Mutation::modified(new)
    };
    let webhooks = Webhooks::new().mutate(Mutate::<ConfigMap>::named("stamp").on_create(stamp));
    let reviews = Arc::new(Reviews::of(&webhooks).unwrap());
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let (reviews, name) = (Arc::clone(&reviews), format!("name-{n}"));
            tokio::spawn(async move {
                let object =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "y"}});
                let answer = reviews.create(&object).by(&name).mutate("stamp").await;
                assert_eq!(answer.patched()["data"], json!({ name.clone(): name }));
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

/// Issue 7: a webhook for Pods that failed closed kept all Pods from starting while its operator was down.
#[test]
fn a_webhook_for_pods_does_not_keep_its_own_operator_down() {
    let teams = Mutate::<Pod>::named("teams").on_create(|_: Pod, _: Context| async { Mutation::unchanged() });
    let service = ServiceRef { namespace: "teams-system".into(), name: "teams-webhook".into(), port: 443 };
    let selector =
        LabelSelector { match_labels: Some([("team".to_owned(), "a".to_owned())].into()), ..Default::default() };
    let chosen = Mutate::<Pod>::named("chosen")
        .failure_policy(FailurePolicy::Ignore)
        .namespace_selector(selector)
        .on_create(|_: Pod, _: Context| async { Mutation::unchanged() });
    let webhooks = Webhooks::new().mutate(teams).mutate(chosen);
    let entries: Vec<_> =
        webhooks.manifests().unwrap().into_iter().map(|entry| entry.guarded("teams-system")).collect();
    let written = serde_json::to_value(mutating_configuration("teams", &entries, &service)).unwrap();
    let left_out = json!([{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["teams-system"]}]);
    assert_eq!(written["webhooks"][0]["namespaceSelector"]["matchExpressions"], left_out);
    assert_eq!(written["webhooks"][1]["failurePolicy"], "Ignore");
    assert_eq!(written["webhooks"][1]["namespaceSelector"], json!({"matchLabels": {"team": "a"}}));
}

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
    let request = json!({
        "uid": "1", "operation": "UPDATE", "subResource": "scale", "object": scale(6), "oldObject": scale(1),
        "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
    });
    let response = respond(&webhooks, "/validate/replicas", request).await;
    assert_eq!(response["status"]["message"], "five at most");
}

/// Issue 10: on a deletion there is no object, only the old one.
#[tokio::test]
async fn a_deletion_does_not_fail_for_want_of_an_object() {
    let keep = |old: Arc<ConfigMap>, _: Context| async move {
        if old.immutable == Some(true) { Verdict::deny("it stays").code(403) } else { Verdict::allow() }
    };
    let webhooks = Webhooks::new()
        .validate(Validate::<ConfigMap>::named("keep").on_delete(keep))
        .mutate(Mutate::<ConfigMap>::named("keep").on_delete(keep));
    for path in ["/validate/keep", "/mutate/keep"] {
        for (old, allowed) in [(json!({"immutable": true}), false), (json!({}), true)] {
            let mut request = request_for_config_map("DELETE");
            (request["object"], request["oldObject"]) = (Value::Null, old);
            let response = respond(&webhooks, path, request).await;
            assert_eq!(response["allowed"], allowed, "{path}: {response}");
        }
    }
}

/// Issue 11: a defaulter built on older types removed fields that it did not know.
#[tokio::test]
async fn a_default_does_not_remove_what_the_type_does_not_know() {
    let stamp = |mut new: Pod, _: Context| async move {
        new.metadata.labels.get_or_insert_default().insert("seen".into(), "yes".into());
        if let Some(spec) = &mut new.spec {
            spec.containers.iter_mut().for_each(|container| container.tty = Some(false));
        }
        Mutation::modified(new)
    };
    let webhooks = Webhooks::new().mutate(Mutate::<Pod>::named("stamp").on_create(stamp));
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "ofTomorrow": 1},
        "spec": {"containers": [{"name": "a", "ofTomorrow": {"x": [1, null]}}], "ofTomorrow": true},
    });
    let answer = Reviews::of(&webhooks).unwrap().create(&pod).mutate("stamp").await;
    pod["metadata"]["labels"] = json!({"seen": "yes"});
    pod["spec"]["containers"][0]["tty"] = json!(false);
    assert_eq!(answer.patched(), pod);
}

/// An object that counts how often it is written.
#[derive(Clone, Debug, Default, Deserialize)]
struct Counted {
    #[serde(default)]
    metadata: ObjectMeta,
}

static WRITTEN: AtomicUsize = AtomicUsize::new(0);

impl Serialize for Counted {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        WRITTEN.fetch_add(1, Ordering::Relaxed);
        json!({ "metadata": self.metadata }).serialize(to)
    }
}

/// Issue 12: comparing what nobody changed was most of a webhook's work.
#[tokio::test]
async fn an_unchanged_object_is_not_taken_apart_to_be_compared() {
    let nothing = |_: Counted, _: Context| async { Mutation::unchanged() };
    let webhook = Mutate::<Counted>::subresource_of::<ConfigMap>("nothing", "status").on_create(nothing);
    let webhooks = Webhooks::new().mutate(webhook);
    let mut request = request_for_config_map("CREATE");
    (request["subResource"], request["object"]) = (json!("status"), json!({"metadata": {"name": "a"}}));
    let response = respond(&webhooks, "/mutate/nothing", request).await;
    assert_eq!((response["allowed"].as_bool(), response.get("patch")), (Some(true), None));
    assert_eq!(WRITTEN.load(Ordering::Relaxed), 0, "it is not even written");
}

/// Issue 22: selectors could not be said in code, and names were fixed.
#[test]
fn no_selector_and_no_name_has_to_be_patched_into_a_manifest() {
    let labels = |key: &str| LabelSelector {
        match_labels: Some([(key.to_owned(), String::new())].into()),
        ..Default::default()
    };
    let webhook = Mutate::<ConfigMap>::named("one")
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

/// Issue 25: a patch went out as an array of numbers.
#[tokio::test]
async fn a_patch_is_not_an_array_of_numbers() {
    let stamp = |mut new: ConfigMap, _: Context| async move {
        new.data = Some([("a".to_owned(), "b".to_owned())].into());
        Mutation::modified(new)
    };
    let webhooks = Webhooks::new().mutate(Mutate::<ConfigMap>::named("stamp").on_create(stamp));
    let mut request = request_for_config_map("CREATE");
    request["object"] = json!({});
    let response = respond(&webhooks, "/mutate/stamp", request).await;
    assert_eq!(response["patchType"], "JSONPatch");
    assert_eq!(response["patch"], "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEiLCJ2YWx1ZSI6eyJhIjoiYiJ9fV0=");
}
