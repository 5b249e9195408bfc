//! Webhooks off: what admission would have said is said in the status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kube::api::DeleteParams;
use portcullis::controller::{Action, Cleanup, Reconcile};
use portcullis::operator::Switch;
use portcullis::webhooks::{BoxError, Context, Operation, Validate, Validator, Verdict, Webhooks};
use portcullis_testing::wait_until;
use serde_json::json;

use crate::boat::{Boat, BoatStatus};
use crate::fixture::{PATIENCE, Place, Running, afloat};

const FINALIZER: &str = "kit.example/boats";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_object_is_not_reconciled_until_it_is_corrected() {
    let place = Place::new("invalid").await;
    place.create("odd", 3).await;
    let running = Running::start(place.controller(), place.runtime(Switch::Off), afloat);
    let odd = place.until("odd", "the verdict", |boat| boat.says("Valid").is_some()).await;
    let message = "Validation failed: a boat goes in circles; spec.oars: must be even";
    assert_eq!(odd.says("Valid"), Some(("False", "ValidationFailed", message)));
    let status = odd.status.unwrap();
    assert_eq!(status.conditions.unwrap()[0].observed_generation, odd.metadata.generation);
    assert_eq!(status.phase, None, "it was not reconciled");
    wait_until("the event", PATIENCE, || async { (place.events("odd").await == ["ValidationFailed"]).then_some(()) })
        .await;

    let quiet = running.idle(&place).await;
    place.merge("odd", json!({"metadata": {"labels": {"woken": "yes"}}})).await;
    let later = running.idle(&place).await;
    assert_eq!(place.writes(quiet).await, [], "nothing new, nothing written");
    place.merge("odd", json!({"spec": {"oars": 5}})).await;
    let newer = place.until("odd", "the same of the new generation", |boat| {
        let conditions = boat.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.map(|condition| condition.observed_generation).eq([boat.metadata.generation])
    });
    newer.await;
    running.idle(&place).await;
    assert_eq!(place.events("odd").await, ["ValidationFailed"], "the same verdict is one event");
    assert_eq!(place.writes(later).await.len(), 1);

    place.merge("odd", json!({"spec": {"oars": 4}})).await;
    let even = place.until("odd", "to be reconciled", |boat| boat.says("Afloat").is_some()).await;
    assert_eq!(even.says("Valid"), Some(("True", "ValidationPassed", "Boat spec is valid")));
    assert_eq!(even.status.unwrap().phase.as_deref(), Some("4 oars"));
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_refused_offline_is_reconciled_once_webhooks_are_on() {
    let place = Place::new("on-again").await;
    place.create("odd", 3).await;
    let running = Running::start(place.controller(), place.runtime(Switch::Off), afloat);
    place.until("odd", "the verdict", |boat| boat.says("Valid").is_some()).await;
    running.end().await;
    let running = Running::start(place.controller(), place.runtime(Switch::On), afloat);
    let odd = place.until("odd", "to be reconciled", |boat| boat.says("Afloat").is_some()).await;
    assert_ne!(odd.says("Valid").map(|valid| valid.1), Some("ValidationFailed"), "the condition is gone");
    running.end().await;
}

async fn sunk(cx: Reconcile<Boat>, problem: String) -> anyhow::Result<Action> {
    cx.apply_status(&BoatStatus { phase: Some(format!("sunk: {problem}")), conditions: None }).await?;
    Ok(Action::await_change())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_of_an_invalid_object_is_replaced_when_corrected() {
    let place = Place::new("reported").await;
    place.create("odd", 3).await;
    let running = Running::start(place.controller().on_invalid(sunk), place.runtime(Switch::Off), afloat);
    let phase = |boat: &Boat| boat.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let report = "sunk: a boat goes in circles; spec.oars: must be even";
    let odd = place.until("odd", "the report", |boat| phase(boat) == report).await;
    assert_eq!(odd.says("Valid").unwrap().1, "ValidationFailed");
    assert_eq!(odd.says("Afloat"), None, "it was not reconciled");
    let quiet = running.idle(&place).await;
    place.merge("odd", json!({"metadata": {"labels": {"woken": "yes"}}})).await;
    running.idle(&place).await;
    assert_eq!(place.writes(quiet).await, [], "nothing new, nothing written");

    place.merge("odd", json!({"spec": {"oars": 4}})).await;
    let even = place.until("odd", "to be reconciled", |boat| boat.says("Afloat").is_some()).await;
    assert_eq!(phase(&even), "4 oars");
    running.end().await;
}

/// An external service that the handler calls, and that can be down.
#[derive(Default)]
struct Registry {
    down: AtomicBool,
    asked: AtomicU32,
}

impl Validator<Boat> for Registry {
    const OPERATIONS: &'static [Operation] = &[Operation::Create];

    async fn create(&self, new: Arc<Boat>, _: Context) -> Result<Verdict, BoxError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) {
            return Err("nobody answers".into());
        }
        Ok(if new.spec.oars.is_multiple_of(2) { Verdict::allow() } else { Verdict::deny("a boat goes in circles") })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_handler_is_retried_and_the_condition_stays() {
    let place = Place::new("undecided").await;
    let registry = Arc::new(Registry::default());
    let even = Validate::<Boat>::new("oars").validator(Arc::clone(&registry));
    let runtime = place.validated(Switch::Off, &Webhooks::new().validate(even));
    let running = Running::start(place.controller(), runtime, afloat);
    place.create("late", 2).await;
    place.until("late", "to be reconciled", |boat| boat.says("Afloat").is_some()).await;
    let quiet = running.idle(&place).await;

    registry.down.store(true, Ordering::SeqCst);
    let before = registry.asked.load(Ordering::SeqCst);
    place.merge("late", json!({"spec": {"oars": 3}})).await;
    wait_until("the handler to be asked again and again", PATIENCE, || async {
        (registry.asked.load(Ordering::SeqCst) >= before + 3).then_some(())
    })
    .await;
    let boat = place.api::<Boat>().get("late").await.unwrap();
    assert_eq!(boat.says("Valid"), Some(("True", "ValidationPassed", "Boat spec is valid")));
    assert_eq!(place.writes(quiet).await, [], "without an answer no condition is written");

    // Nothing enqueues it but its own backoff.
    registry.down.store(false, Ordering::SeqCst);
    let odd = |boat: &Boat| boat.says("Valid").is_some_and(|(status, ..)| status == "False");
    let boat = place.until("late", "the verdict", odd).await;
    assert_eq!(boat.says("Valid").unwrap().2, "Validation failed: a boat goes in circles");
    assert_eq!(boat.status.unwrap().phase.as_deref(), Some("2 oars"), "it was not reconciled");
    running.end().await;
}

/// Dynamo's controllers validate before they handle finalizers: such an object never goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_object_that_is_being_deleted_loses_its_finalizer() {
    let place = Place::new("going").await;
    let controller = place.controller().finalizer(FINALIZER, |_| async { anyhow::Ok(Cleanup::Done) });
    let running = Running::start(controller, place.runtime(Switch::Off), afloat);
    place.create("odd", 1).await;
    let odd = place.until("odd", "the verdict", |boat| boat.says("Valid").is_some()).await;
    assert!(odd.has_finalizer(FINALIZER), "finalizers come first");
    place.api::<Boat>().delete("odd", &DeleteParams::default()).await.unwrap();
    place.gone("odd").await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_on_again_remove_the_verdict_and_nothing_else() {
    let place = Place::new("on-again").await;
    place.create("even", 2).await;
    place.create("odd", 3).await;
    let running = Running::start(place.controller(), place.runtime(Switch::Off), afloat);
    place.until("even", "to be reconciled", |boat| boat.says("Afloat").is_some()).await;
    let even = place.until("even", "the verdict", |boat| boat.says("Valid").is_some()).await;
    assert_eq!(even.says("Valid").unwrap().1, "ValidationPassed", "not what the controller's author says");
    place.until("odd", "the verdict", |boat| boat.says("Valid").is_some()).await;
    running.end().await;

    let running = Running::start(place.controller(), place.runtime(Switch::On), afloat);
    for name in ["even", "odd"] {
        let own = |boat: &Boat| boat.says("Valid").is_some_and(|(_, reason, _)| reason == "Seen");
        let boat = place.until(name, "its author's conditions", own).await;
        assert_eq!(boat.says("Afloat").unwrap().0, "True");
        let managers = boat.metadata.managed_fields.unwrap();
        let ours = managers.iter().find(|entry| entry.manager.as_deref() == Some("boats-validity"));
        let held = ours.map_or(json!(null), |entry| entry.fields_v1.as_ref().unwrap().0.clone());
        assert!(!held.to_string().contains("conditions"), "{held}");
    }
    let quiet = running.idle(&place).await;
    assert_eq!(place.writes(quiet).await, []);
    running.end().await;
}
