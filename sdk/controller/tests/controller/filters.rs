//! Predicates: which changes count, and which always do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::DeleteParams;
use kube::runtime::{Predicate as _, predicates};
use portcullis::controller::Cleanup;
use portcullis::operator::Switch;
use portcullis_testing::wait_until;
use serde_json::json;

use crate::boat::Boat;
use crate::fixture::{PATIENCE, Place, Running, afloat};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_predicate_passes_finalizers_and_deletions() {
    let place = Place::new("generation").await;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let controller = place
        .controller()
        .predicate(predicates::generation.combine(predicates::labels))
        .finalizer("kit.example/boats", |_| async { anyhow::Ok(Cleanup::Done) });
    let running = Running::start(controller, place.runtime(Switch::On), move |cx| {
        counted.fetch_add(1, Ordering::SeqCst);
        afloat(cx)
    });
    place.create("b", 2).await;
    place.until("b", "its status", |boat| boat.says("Afloat").is_some()).await;
    running.idle(&place).await;
    let passed = || count.load(Ordering::SeqCst);
    let another = async |before: usize| {
        wait_until("another pass", PATIENCE, || async { (passed() > before).then_some(()) }).await;
    };

    let before = passed();
    place.merge("b", json!({"metadata": {"annotations": {"some": "note"}}})).await;
    running.idle(&place).await;
    assert_eq!(passed(), before, "an annotation does not count");
    place.merge("b", json!({"metadata": {"labels": {"some": "label"}}})).await;
    another(before).await;
    let before = passed();
    place.merge("b", json!({"metadata": {"finalizers": ["kit.example/boats", "other.example/hold"]}})).await;
    another(before).await;
    place.api::<Boat>().delete("b", &DeleteParams::default()).await.unwrap();
    let ours_gone = |boat: &Boat| !boat.has_finalizer("kit.example/boats");
    place.until("b", "the cleanup", ours_gone).await;
    place.merge("b", json!({"metadata": {"finalizers": null}})).await;
    place.gone("b").await;
    running.end().await;
}
