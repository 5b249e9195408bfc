//! Issues of other SDKs' users, which must not occur here: tested through the API server where they show there. The
//! numbers are those of the projects' own trackers.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Cx, Poll};

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Body, Frame};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{CustomResourceExt, ResourceExt};
use portcullis::webhooks::{Context, FailurePolicy, Mutate, Mutation, Validate, Verdict, Webhooks};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::decisions::ask;
use super::gate::Gate;
use crate::fixture::{Entity, entity, patch_of, review, webhooks};

/// Marks each object with its own name, and does so often enough for two at a time to meet.
fn marks() -> Mutate<Entity> {
    Mutate::<Entity>::new("mark").on_create(|mut new: Entity, _: Context| async move {
        tokio::task::yield_now().await;
        let name = new.name_any();
        new.labels_mut().insert("mark".into(), name.clone());
        for part in &mut new.spec.parts {
            part.image = Some(format!("{name}/{}", part.name));
        }
        Mutation::modified(new)
    })
}

/// dotnet-operator-sdk#536, #537, #540: the API server refused every answer of a validating webhook that named a patch
/// type, and then every one of a mutating webhook that did not. volcano PR#2225: a patch type with an empty patch.
#[tokio::test]
async fn no_answer_is_refused_for_a_wrong_patch_type() {
    let same = Mutate::<Entity>::new("same").on_create(|new: Entity, _: Context| async { Mutation::modified(new) });
    let unchanged =
        Mutate::<Entity>::new("unchanged").on_create(|_: Entity, _: Context| async { Mutation::unchanged() });
    let allowed = Validate::<Entity>::new("allowed").on_create(|_: Arc<Entity>, _: Context| async { Verdict::allow() });
    let webhooks = Webhooks::new().mutate(same).mutate(unchanged).mutate(marks()).validate(allowed);
    let routes = webhooks.routes().unwrap();
    let object = entity(json!({"username": "a"}));
    for path in ["/mutate/same", "/mutate/unchanged", "/validate/allowed"] {
        let (_, answer) = ask(&routes, path, &review("CREATE", object.clone(), Value::Null)).await;
        let response = answer["response"].as_object().unwrap();
        let members: BTreeSet<_> = response.keys().map(String::as_str).collect();
        assert_eq!(members, BTreeSet::from(["allowed", "uid"]), "{path}");
    }
    let gate = Gate::over(webhooks, &[Entity::crd()]).await;
    assert_eq!(gate.create("a", json!({"username": "a"})).await.unwrap().labels()["mark"], "a");
}

/// dotnet-operator-sdk#682: a differ that all requests shared broke, or mixed up what it compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_mutations_never_mix_up_their_patches() {
    let gate = Gate::over(Webhooks::new().mutate(marks()), &[Entity::crd()]).await;
    let names: Vec<String> = (0..64).map(|index| format!("n{index}")).collect();
    let made = join_all(names.iter().map(|name| {
        let parts: Vec<Value> = (0..name.len() * 3).map(|part| json!({"name": format!("p{part}")})).collect();
        gate.create(name, json!({"username": name, "parts": parts}))
    }));
    for (made, name) in made.await.into_iter().zip(&names) {
        let made = made.unwrap();
        assert_eq!((&made.labels()["mark"], &made.data["spec"]["username"]), (name, &json!(name)));
        let parts = made.data["spec"]["parts"].as_array().unwrap();
        assert_eq!(parts.len(), name.len() * 3);
        assert!(parts.iter().all(|part| part["image"].as_str().unwrap().starts_with(&format!("{name}/"))));
    }
}

/// dotnet-operator-sdk#532: a webhook for Pods kept all Pods from being made while its operator was down.
#[tokio::test]
async fn an_operator_that_is_down_never_blocks_exempt_pods() {
    let deny = |policy: FailurePolicy| {
        let webhook = Validate::<Pod>::new("pods").failure_policy(policy);
        Webhooks::new().validate(webhook.on_create(|_: Arc<Pod>, _: Context| async { Verdict::deny("no pods") }))
    };
    let pod: Pod = serde_json::from_value(
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "i"}]}}),
    )
    .unwrap();
    for (policy, goes_on) in [(FailurePolicy::Ignore, true), (FailurePolicy::Fail, false)] {
        let mut gate = Gate::over(deny(policy), &[]).await;
        let pods = gate.of::<Pod>();
        let said = pods.create(&PostParams::default(), &pod).await.unwrap_err().to_string();
        assert!(said.contains("no pods"), "a denial holds whatever the policy is: {said}");
        gate.serving.stop.cancel();
        (&mut gate.serving.ended).await.unwrap();
        assert_eq!(pods.create(&PostParams::default(), &pod).await.is_ok(), goes_on, "{policy}");
    }
    // The generated configuration excludes the operator's own Pods under either policy.
    let guarded = deny(FailurePolicy::Fail).manifests().unwrap().remove(0).prevent_deadlock("own").unwrap();
    let expression = &guarded.namespace_selector.unwrap().match_expressions.unwrap()[0];
    assert_eq!((expression.operator.as_str(), expression.values.as_ref().unwrap()[0].as_str()), ("NotIn", "own"));
}

/// controller-runtime#1278, #2048: "there is no content to decode". Of a collection every object is asked for.
#[tokio::test]
async fn a_deletion_never_fails_for_want_of_an_object() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let mutate = Mutate::<Entity>::new("going").on_delete(move |old: Arc<Entity>, cx: Context| {
        assert!(cx.name.is_none() || cx.name == old.metadata.name, "of a collection the request names none");
        count.fetch_add(1, Ordering::SeqCst);
        async { Verdict::allow() }
    });
    let keep = Validate::<Entity>::new("keep").on_delete(|old: Arc<Entity>, _: Context| async move {
        if old.spec.username == "keep" { Verdict::deny("it stays") } else { Verdict::allow() }
    });
    let gate = Gate::over(Webhooks::new().mutate(mutate).validate(keep), &[Entity::crd()]).await;
    for name in ["keep", "a", "b"] {
        gate.create(name, json!({"username": name})).await.unwrap();
    }
    gate.delete("a", &DeleteParams::default()).await.unwrap();
    let refused = gate.api().delete_collection(&DeleteParams::default(), &kube::api::ListParams::default()).await;
    assert!(refused.unwrap_err().to_string().contains("it stays"));
    assert!(seen.load(Ordering::SeqCst) >= 2, "one alone, and those of the collection");
}

/// The number of reads and writes of `Counted`.
static READ: AtomicUsize = AtomicUsize::new(0);
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone)]
struct Counted(Value);

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        READ.fetch_add(1, Ordering::SeqCst);
        Value::deserialize(from).map(Self)
    }
}

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        WRITTEN.fetch_add(1, Ordering::SeqCst);
        self.0.serialize(to)
    }
}

/// controller-runtime#2431: objects were taken apart and compared where nothing had changed.
#[tokio::test]
async fn an_unchanged_object_is_never_taken_apart_to_compare() {
    let on_scale = |name: &str| Mutate::<Counted>::subresource_of::<Entity>(name, "x");
    let routes = Webhooks::new()
        .mutate(on_scale("unchanged").on_create(|_: Counted, _: Context| async { Mutation::unchanged() }))
        .mutate(on_scale("same").on_create(|new: Counted, _: Context| async { Mutation::modified(new) }))
        .routes()
        .unwrap();
    let mut review = review("CREATE", entity(json!({"username": "a"})), Value::Null);
    review["request"]["subResource"] = json!("x");
    for (path, reads, writes) in [("/mutate/unchanged", 1, 1), ("/mutate/same", 2, 2)] {
        let (read, written) = (READ.load(Ordering::SeqCst), WRITTEN.load(Ordering::SeqCst));
        let (_, answer) = ask(&routes, path, &review).await;
        assert_eq!(answer["response"].get("patch"), None);
        assert!(READ.load(Ordering::SeqCst) - read <= reads, "{path}");
        assert!(WRITTEN.load(Ordering::SeqCst) - written <= writes, "{path}");
    }
}

/// kube-rs#1781: the patch went out as an array of numbers.
#[tokio::test]
async fn a_patch_is_never_an_array_of_numbers() {
    let routes = webhooks().routes().unwrap();
    let object = entity(json!({"username": "overwrite"}));
    let (_, answer) = ask(&routes, "/mutate/defaults", &review("CREATE", object, Value::Null)).await;
    assert!(answer["response"]["patch"].is_string());
    let expected = json!([{"op": "replace", "path": "/spec/username", "value": "random overwritten"}]);
    assert_eq!(patch_of(&answer["response"]), Some(expected));
}

/// ingress-nginx#4916: "expected response.uid", and no message about the object.
#[tokio::test]
async fn an_undecodable_object_never_costs_the_uid_of_the_answer() {
    let routes = webhooks().routes().unwrap();
    for object in [json!({"spec": {"username": 7}}), json!({"spec": []}), json!([]), json!("x"), json!({})] {
        for path in ["/validate/username", "/mutate/defaults"] {
            let (status, answer) = ask(&routes, path, &review("CREATE", object.clone(), Value::Null)).await;
            assert_eq!((status.as_u16(), &answer["response"]["allowed"]), (200, &json!(false)), "{object}");
            assert_eq!(answer["response"]["uid"], "e911857d-c318-11e8-bbad-025000000001");
        }
    }
}

/// controller-runtime#868, #2390: paths were what the SDK made of the kind's name, and two webhooks of one kind met.
#[tokio::test]
async fn webhooks_of_one_kind_never_have_to_share_a_path() {
    let refuse = |name: &'static str| {
        Validate::<Entity>::new(name).on_create(move |new: Arc<Entity>, _: Context| async move {
            if new.spec.username == name { Verdict::deny(format!("refused by {name}")) } else { Verdict::allow() }
        })
    };
    let webhooks = Webhooks::new().validate(refuse("one").path("/v2/deep/er")).validate(refuse("two"));
    assert_eq!(webhooks.routes().unwrap().paths(), ["/v2/deep/er", "/validate/two"]);
    let gate = Gate::over(webhooks, &[Entity::crd()]).await;
    for name in ["one", "two"] {
        let refused = gate.create("a", json!({"username": name})).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().ends_with(&format!("refused by {name}")), "{refused}");
    }
}

/// A body of spaces that goes on as long as it is read.
struct Endless(Arc<AtomicUsize>);

impl Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Cx<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b' '; 1024 * 1024])))))
    }
}

/// autoscaler PR#9690: a body was read for as long as it came.
#[tokio::test]
async fn a_body_is_never_read_without_bound() {
    let (routes, read) = (webhooks().routes().unwrap(), Arc::new(AtomicUsize::new(0)));
    let request = Request::post("/validate/username").header("content-type", "application/json");
    let response = routes.respond(request.body(Endless(Arc::clone(&read))).unwrap()).await;
    assert_eq!(response.status(), 413);
    let said = response.into_body().collect().await.unwrap().to_bytes();
    assert!(said.len() < 200, "{said:?}");
    assert!(read.load(Ordering::SeqCst) < 32, "MiB: 7 for the review, and a few more so that the answer is read");
}

/// akuity/kargo PR#1868: the old object reached the defaulter empty.
#[tokio::test]
async fn a_defaulter_never_gets_an_old_object_that_is_empty() {
    let keep = Mutate::<Entity>::new("keep").on_update(|old: Arc<Entity>, mut new: Entity, _: Context| async move {
        new.spec.username = format!("{} after {}", new.spec.username, old.spec.username);
        Mutation::modified(new)
    });
    let gate = Gate::over(Webhooks::new().mutate(keep), &[Entity::crd()]).await;
    gate.create("a", json!({"username": "one"})).await.unwrap();
    let changed = gate.change("a", json!({"spec": {"username": "two"}})).await.unwrap();
    assert_eq!(changed.data["spec"]["username"], "two after one");
}
