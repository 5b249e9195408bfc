//! Children: applied when they differ, restored when others change them, and left alone when they are not ours.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use portcullis::controller::apply::FieldManager;
use portcullis::controller::{Action, Applied, Reconcile};
use portcullis::operator::Switch;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};

use crate::boat::Boat;
use crate::fixture::{PATIENCE, Place, Running, afloat};

fn log_book(boat: &Boat) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name.clone_from(&boat.metadata.name);
    map.data = Some(BTreeMap::from([("oars".to_owned(), boat.spec.oars.to_string())]));
    map
}

/// A boat with oars has a log book.
async fn keep(cx: Reconcile<Boat>) -> anyhow::Result<Action> {
    match cx.object.spec.oars {
        0 => _ = cx.delete::<ConfigMap>(&cx.key.name, PropagationPolicy::Background).await?,
        _ => _ = cx.apply(&log_book(&cx.object)).await?,
    }
    afloat(cx).await
}

fn oars(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("oars").map(String::as_str)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_are_applied_restored_and_cost_nothing_at_rest() {
    let place = Place::new("children").await;
    let maps = place.api::<ConfigMap>();
    let running = Running::start(place.controller().owns::<ConfigMap>(), place.runtime(Switch::Off), keep);
    place.create("b", 2).await;
    let map = wait_for_object(&maps, "b", "two oars", PATIENCE, |map| oars(map) == Some("2")).await;
    let owner = &map.metadata.owner_references.unwrap()[0];
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("Boat", "b", Some(true)));

    let quiet = running.idle(&place).await;
    let foreign = json!({"metadata": {"labels": {"foreign": "yes"}}, "data": {"weather": "fine"}});
    maps.patch("b", &PatchParams::default(), &Patch::Merge(foreign)).await.unwrap();
    running.idle(&place).await;
    assert_eq!(place.writes(quiet).await, [], "what others add stays theirs");

    let drift = json!({"data": {"oars": "17"}});
    maps.patch("b", &PatchParams::default(), &Patch::Merge(drift)).await.unwrap();
    let map = wait_for_object(&maps, "b", "two oars again", PATIENCE, |map| oars(map) == Some("2")).await;
    assert_eq!(map.data.unwrap()["weather"], "fine");
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    wait_for_object(&maps, "b", "a new one", PATIENCE, |map| oars(map) == Some("2")).await;

    place.merge("b", json!({"spec": {"oars": 0}})).await;
    wait_until("no log book", PATIENCE, || async { maps.get_opt("b").await.unwrap().is_none().then_some(()) }).await;
    running.end().await;

    // Another process finds everything as it should be.
    let since = place.cluster.audit().mark();
    let running = Running::start(place.controller().owns::<ConfigMap>(), place.runtime(Switch::Off), keep);
    running.idle(&place).await;
    assert_eq!(place.writes(since).await, [], "a restart writes nothing");
    running.end().await;
}

/// The key `crew` is the controller's alone, although it sets none.
fn crew(kind: &str, theirs: &Value, ours: &Value) -> Option<Value> {
    let holds = |held: &Value| held.pointer("/f:data/f:crew").is_some();
    (kind == "ConfigMap" && holds(theirs) && !holds(ours)).then(|| json!({"data": {"crew": null}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_only_we_may_hold_are_removed() {
    let place = Place::new("exclusive").await;
    let maps = place.api::<ConfigMap>();
    let managers = FieldManager { exclusive: crew, ..FieldManager::new("boats") };
    let controller = place.controller().owns::<ConfigMap>().field_manager(managers);
    let running = Running::start(controller, place.runtime(Switch::Off), keep);
    place.create("b", 2).await;
    wait_for_object(&maps, "b", "two oars", PATIENCE, |map| oars(map) == Some("2")).await;
    let quiet = running.idle(&place).await;
    let foreign = json!({"data": {"weather": "fine", "crew": "pirates"}});
    maps.patch("b", &PatchParams::default(), &Patch::Merge(foreign)).await.unwrap();
    let no_crew = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| !data.contains_key("crew"));
    let map = wait_for_object(&maps, "b", "no crew", PATIENCE, no_crew).await;
    assert_eq!(map.data.unwrap()["weather"], "fine");
    running.idle(&place).await;
    assert_eq!(place.writes(quiet).await.len(), 2, "an apply, and the patch that takes it away");
    running.end().await;
}

/// Changes that the other client tries to make.
const UNDOINGS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_that_is_undone_backs_off_and_names_the_rival() {
    let place = Place::new("fight").await;
    let maps = place.api::<ConfigMap>();
    let running = Running::start(place.controller().owns::<ConfigMap>(), place.runtime(Switch::Off), keep);
    place.create("b", 2).await;
    wait_for_object(&maps, "b", "two oars", PATIENCE, |map| oars(map) == Some("2")).await;
    let quiet = running.idle(&place).await;
    let params = PatchParams { field_manager: Some("pirates".to_owned()), ..PatchParams::default() };
    for _ in 0..UNDOINGS {
        maps.patch("b", &params, &Patch::Merge(json!({"data": {"oars": "17"}}))).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    wait_for_object(&maps, "b", "two oars in the end", PATIENCE, |map| oars(map) == Some("2")).await;
    // Each write is twice as far from the last one as the one before.
    let writes = place.writes(quiet).await;
    assert!(writes.len() <= UNDOINGS / 3, "{} writes after {UNDOINGS} changes: {writes:?}", writes.len());
    assert_eq!(place.events("b").await, ["RepairUndone"]);
    let events = place.api::<Event>().list(&ListParams::default()).await.unwrap();
    let note = events.items[0].note.as_deref().unwrap();
    assert!(
        note.contains(&format!("ConfigMap {}/b: field manager pirates changes data again", place.namespace)),
        "{note}"
    );

    // A change of the owner waits for nothing.
    place.merge("b", json!({"spec": {"oars": 4}})).await;
    wait_for_object(&maps, "b", "four oars", PATIENCE, |map| oars(map) == Some("4")).await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_childs_name_that_is_not_ours_is_left_alone() {
    let place = Place::new("taken").await;
    let maps = place.api::<ConfigMap>();
    let mut theirs = ConfigMap::default();
    theirs.metadata.name = Some("b".to_owned());
    maps.create(&PostParams::default(), &theirs).await.unwrap();
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let running = Running::start(place.controller().owns::<ConfigMap>(), place.runtime(Switch::On), move |cx| {
        let said = said.clone();
        async move {
            let wrong = cx.apply(&Secret::default()).await.unwrap_err().to_string();
            let error = cx.apply(&log_book(&cx.object)).await.unwrap_err().to_string();
            cx.delete::<ConfigMap>("b", PropagationPolicy::Background).await?;
            said.send((wrong, error))?;
            Ok(Action::await_change())
        }
    });
    place.create("b", 2).await;
    let (wrong, error) = tokio::time::timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
    assert!(wrong.ends_with("where it is defined"), "{wrong}");
    assert!(error.starts_with("ConfigMap ") && error.contains("was not made by this operator"), "{error}");
    assert_eq!(maps.get("b").await.unwrap().data, None);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_is_created_once_its_name_is_free() {
    let place = Place::new("name-freed").await;
    let maps = place.api::<ConfigMap>();
    let mut theirs = ConfigMap::default();
    theirs.metadata.name = Some("b".to_owned());
    theirs.metadata.finalizers = Some(vec!["other.example/hold".to_owned()]);
    maps.create(&PostParams::default(), &theirs).await.unwrap();
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let running = Running::start(place.controller().owns::<ConfigMap>(), place.runtime(Switch::On), move |cx| {
        let said = said.clone();
        async move {
            said.send(cx.apply(&log_book(&cx.object)).await?)?;
            Ok(Action::await_change())
        }
    });
    place.create("b", 2).await;
    let first = tokio::time::timeout(PATIENCE, heard.recv()).await.unwrap();
    assert_eq!(first, Some(Applied::Terminating));
    let free = json!({"metadata": {"finalizers": null}});
    maps.patch("b", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    wait_for_object(&maps, "b", "two oars", PATIENCE, |map| oars(map) == Some("2")).await;
    running.end().await;
}
