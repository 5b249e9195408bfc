//! The objects of a controller: finalizers, objects that do not decode, changes that enqueue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use portcullis::controller::{Action, Cleanup};
use portcullis::operator::Switch;
use portcullis_testing::wait_until;
use serde_json::json;

use crate::boat::Boat;
use crate::fixture::{PATIENCE, Place, Running, afloat};

const FINALIZER: &str = "kit.example/boats";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_finalizer_is_set_before_the_first_reconcile() {
    let place = Place::new("finalizer").await;
    let tries = Arc::new(AtomicUsize::new(0));
    let cleanups = tries.clone();
    let controller = place.controller().finalizer(FINALIZER, move |deletion| {
        let first = cleanups.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            anyhow::ensure!(!first, "the first cleanup fails");
            assert!(deletion.reconcile.is_ok());
            Ok(Cleanup::Done)
        }
    });
    let running = Running::start(controller, place.runtime(Switch::On), |cx| {
        assert!(cx.object.has_finalizer(FINALIZER), "{:?}", cx.object.metadata);
        afloat(cx)
    });
    place.create("b", 2).await;
    place.until("b", "its status", |boat| boat.says("Afloat").is_some() && boat.has_finalizer(FINALIZER)).await;
    // A user removes it: it comes back.
    place.merge("b", json!({"metadata": {"finalizers": ["other.example/hold"]}})).await;
    let both = place.until("b", "its finalizer again", |boat| boat.has_finalizer(FINALIZER)).await;
    assert!(both.has_finalizer("other.example/hold"), "others' finalizers stay");
    place.api::<Boat>().delete("b", &DeleteParams::default()).await.unwrap();
    let held = place.until("b", "ours to go", |boat| !boat.has_finalizer(FINALIZER)).await;
    assert!(held.has_finalizer("other.example/hold"));
    assert_eq!(tries.load(Ordering::SeqCst), 2, "a failed cleanup is tried again, a done one is not");
    place.merge("b", json!({"metadata": {"finalizers": null}})).await;
    place.gone("b").await;
    running.end().await;
}

/// A predicate on the generation alone would swallow such an update.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_adds_a_finalizer_enqueues_the_object() {
    let place = Place::new("wakes").await;
    let count = Arc::new(AtomicUsize::new(0));
    let passes = count.clone();
    let running = Running::start(place.controller(), place.runtime(Switch::On), move |cx| {
        passes.fetch_add(1, Ordering::SeqCst);
        afloat(cx)
    });
    place.create("b", 2).await;
    place.until("b", "its status", |boat| boat.says("Afloat").is_some()).await;
    running.idle(&place).await;
    let before = count.load(Ordering::SeqCst);
    assert!(before <= 2, "our own status enqueues once at most: {before}");
    place.merge("b", json!({"metadata": {"finalizers": ["other.example/hold"]}})).await;
    wait_until("another pass", PATIENCE, || async { (count.load(Ordering::SeqCst) > before).then_some(()) }).await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undecodable_object_stops_no_other_and_can_be_deleted() {
    let place = Place::new("undecodable").await;
    let api: Api<DynamicObject> =
        Api::namespaced_with(place.cluster.admin(), &place.namespace, &ApiResource::erase::<Boat>(&()));
    let mut bad = DynamicObject::new("bad", &ApiResource::erase::<Boat>(&()));
    bad.metadata.finalizers = Some(vec![FINALIZER.into()]);
    bad.data = json!({"spec": {"oars": "many"}});
    api.create(&PostParams::default(), &bad).await.unwrap();
    let controller = place.controller().finalizer(FINALIZER, |deletion| async move {
        if let Err(problem) = &deletion.reconcile {
            assert!(problem.contains("many"), "{problem}");
        }
        anyhow::Ok(Cleanup::Done)
    });
    let running = Running::start(controller, place.runtime(Switch::Off), afloat);
    place.create("good", 2).await;
    place.until("good", "its status", |boat| boat.says("Afloat").is_some()).await;
    api.delete("bad", &DeleteParams::default()).await.unwrap();
    wait_until("the bad one to go", PATIENCE, || async { api.get_opt("bad").await.unwrap().is_none().then_some(()) })
        .await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cleanup_that_waits_holds_the_object_and_runs_again() {
    let place = Place::new("waits").await;
    let tries = Arc::new(AtomicUsize::new(0));
    let cleanups = tries.clone();
    let controller = place.controller().finalizer(FINALIZER, move |_| {
        let soon = Action::requeue(std::time::Duration::from_millis(50));
        let done = cleanups.fetch_add(1, Ordering::SeqCst) == 2;
        async move { anyhow::Ok(if done { Cleanup::Done } else { Cleanup::Pending(soon) }) }
    });
    let running = Running::start(controller, place.runtime(Switch::On), afloat);
    place.create("b", 2).await;
    place.until("b", "its finalizer", |boat| boat.has_finalizer(FINALIZER)).await;
    place.api::<Boat>().delete("b", &DeleteParams::default()).await.unwrap();
    place.gone("b").await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    running.end().await;
}
