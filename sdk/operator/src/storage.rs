//! The versions in which the API server stores objects of kinds that are converted.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use futures::stream::select_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::health::Health;
use portcullis_client::{error_chain, relist_after_outage};
use portcullis_webhook::conversion::{Conversion, Engine};

/// Watches the CRDs until `stop`, and sets in the engines of their conversions what distinguishes a write from a read
/// ([`Engine::set_storage`]). Ready when every engine is set: until then a write may lose data.
pub(super) async fn follow_storage(
    client: Client,
    conversions: Vec<Conversion>,
    health: Health,
    stop: CancellationToken,
) {
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    let events = conversions.iter().enumerate().map(|(index, conversion)| {
        let (crds, name) = (crds.clone(), conversion.crd.clone());
        let events = relist_after_outage(move || watch_object(crds.clone(), &name).boxed()).default_backoff();
        events.map(move |event| (index, event)).boxed()
    });
    let mut events = select_all(events);
    let mut unset: BTreeSet<usize> = (0..conversions.len()).collect();
    let follow = async {
        while let Some((index, event)) = events.next().await {
            let Some(Conversion { crd: name, engine, .. }) = conversions.get(index) else { continue };
            match event {
                // A deleted CRD has no objects, and one that is created again says what it stores.
                Ok(crd) => {
                    if crd.is_some_and(|crd| set_storage(engine, &crd)) && unset.remove(&index) && unset.is_empty() {
                        health.ready();
                    }
                }
                Err(error) => warn!(
                    crd = name,
                    error = error_chain(&error),
                    "cannot watch the CRD, which says in which version objects are stored; retrying"
                ),
            }
        }
    };
    let ready = async { health.logged_during(health.until_ready()).await };
    stop.run_until_cancelled(futures::future::join(follow, ready)).await;
}

/// Sets in the engine the stored versions of the CRD, once its status has them.
fn set_storage(engine: &Engine, crd: &CustomResourceDefinition) -> bool {
    let storage = crd.spec.versions.iter().find(|version| version.storage);
    let stored = crd.status.as_ref().and_then(|status| status.stored_versions.clone());
    let (Some(storage), Some(stored)) = (storage, stored) else { return false };
    engine.set_storage(&*storage.name, stored);
    true
}
