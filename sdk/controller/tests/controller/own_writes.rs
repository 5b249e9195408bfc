//! Our own writes enqueue their object once at most, and hide no write of others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use portcullis::controller::{Action, Cleanup, Reconcile};
use portcullis::operator::Switch;
use serde_json::json;

use crate::boat::Boat;
use crate::fixture::{Place, Running, afloat};

const FINALIZER: &str = "kit.example/boats";

/// Writes a child and the status.
async fn log_and_float(cx: Reconcile<Boat>) -> anyhow::Result<Action> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(cx.key.name.clone());
    map.data = Some(BTreeMap::from([("oars".to_owned(), cx.object.spec.oars.to_string())]));
    cx.apply(&map).await?;
    afloat(cx).await
}

fn phase(boat: &Boat) -> Option<&str> {
    boat.status.as_ref()?.phase.as_deref()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_causes_at_most_one_more_reconcile_and_no_write() {
    let place = Place::new("own-writes").await;
    let count = Arc::new(AtomicUsize::new(0));
    let passes = count.clone();
    let done = |_| async { anyhow::Ok(Cleanup::Done) };
    let controller = place.controller().finalizer(FINALIZER, done).owns::<ConfigMap>();
    let running = Running::start(controller, place.runtime(Switch::Off), move |cx| {
        passes.fetch_add(1, Ordering::SeqCst);
        log_and_float(cx)
    });
    let mark = place.cluster.audit().mark();
    place.create("b", 2).await;
    for oars in 2..22 {
        place.merge("b", json!({"spec": {"oars": oars * 2}})).await;
        let wanted = format!("{} oars", oars * 2);
        place.until("b", &wanted, |boat| phase(boat) == Some(&*wanted)).await;
    }
    running.idle(&place).await;
    // Each change is written to the child, to the status and to the condition of the validators, the first one to the
    // finalizers as well. The creation and the first change may be one.
    let writes = place.writes(mark).await.len();
    assert!((61..=64).contains(&writes), "{writes} writes");
    let count = count.load(Ordering::SeqCst);
    assert!((20..=21 + writes).contains(&count), "{count} reconciles for {writes} writes");
    running.end().await;
}

/// The answer to the status shows the new spec, and the watch brings nothing new then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_between_read_and_write_of_a_status_is_not_lost() {
    let place = Place::new("in-between").await;
    let api = place.api::<Boat>();
    let running = Running::start(place.controller(), place.runtime(Switch::On), move |cx| {
        let api = api.clone();
        async move {
            // Another client is faster, nine times.
            let oars = cx.object.spec.oars + 2;
            if oars <= 20 {
                let more = Patch::Merge(json!({"spec": {"oars": oars}}));
                api.patch(&cx.key.name, &PatchParams::default(), &more).await?;
            }
            afloat(cx).await
        }
    });
    place.create("b", 2).await;
    place.until("b", "the last change in the status", |boat| phase(boat) == Some("20 oars")).await;
    running.end().await;
}
