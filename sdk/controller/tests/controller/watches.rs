//! Panics in the callbacks of a watch.

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use portcullis::controller::{Namespaces, SharedController, Stored as _, Watches};
use portcullis::operator::Switch;
use portcullis_testing::wait_until;
use serde_json::json;

use crate::boat::Boat;
use crate::fixture::{PATIENCE, Place, Running, afloat};

fn tokens(boat: &Boat) -> Vec<String> {
    assert!(boat.name_any() != "poison", "no token for it");
    vec![boat.name_any()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_callback_is_counted_and_the_watch_goes_on() {
    let place = Place::new("panics").await;
    // In the first list already, and later in the watch.
    for name in ["bomb", "poison", "first"] {
        place.create(name, 2).await;
    }
    let controller = SharedController::new(place.controller().index_by(tokens)).on_change(|change| {
        let about = change.new.as_ref().or(change.old.as_ref()).unwrap();
        assert!(about.name() != "bomb", "no listening to it");
    });
    let (store, runtime) = (controller.store(), place.runtime(Switch::On));
    let (metrics, namespace) = (runtime.metrics.clone(), place.namespace.clone());
    let running = Running::spawn(runtime, async move |runtime| {
        let namespaces = Namespaces::parse(&namespace);
        let watches =
            Watches::new(runtime.client.clone(), namespaces, runtime.stop.clone()).with_metrics(&runtime.metrics);
        controller.follow(&watches);
        controller.work(&watches, runtime, afloat).await;
        watches.ended().await;
    });
    let afloat = |boat: &Boat| boat.says("Afloat").is_some();
    place.until("first", "its status", afloat).await;
    place.until("bomb", "its status, as the listener comes last", afloat).await;
    place.create("second", 2).await;
    place.until("second", "its status", afloat).await;
    assert!(store.get(&place.namespace, "poison").is_none(), "there is nothing to store of it");

    place.merge("bomb", json!({ "spec": { "oars": 4 } })).await;
    place.until("bomb", "its status", |boat| boat.status.as_ref().unwrap().phase.as_deref() == Some("4 oars")).await;
    place.merge("poison", json!({ "spec": { "oars": 4 } })).await;
    place.api::<Boat>().delete("bomb", &DeleteParams::default()).await.unwrap();
    let gone = || async { store.get(&place.namespace, "bomb").is_none().then_some(()) };
    wait_until("the boat to be forgotten", PATIENCE, gone).await;
    // Three of the listener at least: the list, the change, the deletion; two of the tokens: the list, the change.
    let counted = || async {
        let text = metrics.encode();
        let line = text.lines().find(|line| line.starts_with(r#"portcullis_watch_panics_total{kind="Boat"}"#))?;
        (line.rsplit_once(' ')?.1.parse::<u64>().ok()? >= 5).then_some(())
    };
    wait_until("all panics to be counted", PATIENCE, counted).await;
    running.end().await;
}
