//! The controllers: observe, plan, apply. All of what is here is about kinds in general; [`crate::kinds`] has those that
//! there are.

mod backend_pods;
mod config;
mod contents;
mod failure;
mod foreign;
mod live;
mod obstacles;
mod reach;
mod registry;
mod replace;
mod request;
mod stores;
mod traces;
mod wake;
mod workload;

use std::{borrow::Cow, fmt::Debug, sync::Arc};

use futures::future::join;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Resource, api::PartialObjectMeta, core::NamespaceResourceScope};
use mcp_plan::{settings::Settings, workload::ChildKind};
use portcullis::{
    controller::{Namespaces, Watches, watcher_config},
    manifest::Access,
    operator::Runtime,
    webhooks::Webhooks,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::admission::{Admission, Judging};

pub use live::{Outsider, referrers};
pub use registry::Registry;
pub use stores::Stores;
pub use traces::{DeploymentTrace, PodTrace, Trace};

use registry::{Building, KindController, Registered};
use wake::Wake;

/// The controllers of every registered kind and what they share.
#[derive(Clone)]
pub struct Controllers {
    kinds: Arc<Vec<Box<dyn Registered>>>,
    stores: Arc<Stores>,
    settings: Settings,
    namespaces: Namespaces,
    watched: watch::Sender<Option<Arc<Watched>>>,
}

/// The watches of the process, and who works on what they bring.
struct Watched {
    watches: Watches,
    controllers: Vec<Box<dyn KindController>>,
}

impl Debug for Controllers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controllers").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

// === impl Controllers ===

impl Controllers {
    /// The controllers of these kinds.
    pub fn new(registry: Registry, settings: Settings, namespaces: Namespaces) -> Self {
        let Registry { kinds, stores, outsiders } = registry;
        let watched = watch::Sender::new(None);
        let stores = Arc::new(Stores::new(stores, outsiders));
        Self { kinds: Arc::new(kinds), stores, settings, namespaces, watched }
    }

    /// The admission webhooks of the kinds. References are looked up in the stores, once those are filled.
    pub fn webhooks(&self, admission: Admission) -> Webhooks {
        let judging = Judging { admission, known: self.stores.clone(), settings: self.settings.clone() };
        self.kinds.iter().fold(Webhooks::new(), |webhooks, kind| kind.webhook(webhooks, &judging))
    }

    /// Fills the stores until [`Runtime::stop`]: in every replica, because its webhooks read them.
    pub async fn watch(self, runtime: Runtime) {
        let Self { kinds, stores, settings, namespaces, watched } = self;
        let namespaces =
            if runtime.scope.restricted_to().is_some() { Namespaces::from_scope(&runtime.scope) } else { namespaces };
        let watches =
            Watches::new(runtime.client.clone(), namespaces, runtime.stop.clone()).with_metrics(&runtime.metrics);
        stores.ask_with(runtime.client.clone());
        let wake = Wake::new(stores.clone(), &settings);
        let building = Building { stores: stores.clone(), settings, wake: wake.clone(), client: runtime.client };
        let controllers: Vec<_> = kinds.iter().map(|kind| kind.controller(&building)).collect();
        wake.reach(controllers.iter().map(|controller| (controller.kind(), controller.queue())).collect());
        follow_built_in(&watches, &stores, &wake);
        for controller in &controllers {
            controller.follow(&watches);
        }
        let all = Arc::new(Watched { watches, controllers });
        watched.send_replace(Some(all.clone()));
        if all.watches.ready().await {
            stores.set_ready(true);
            tracing::info!("the caches hold every watched kind: webhooks can answer from them");
            runtime.stop.cancelled().await;
        }
        stores.set_ready(false);
        all.watches.ended().await;
    }

    /// The kinds, each with what its controller does beside watching.
    pub fn kinds(&self) -> impl Iterator<Item = (Cow<'static, str>, Access)> {
        self.kinds.iter().map(|kind| (kind.kind(), kind.access()))
    }

    /// Reconciles what [`watch`](Self::watch) brings of this kind until [`Runtime::stop`]: in the replica that leads.
    /// Reconciles under way are finished.
    pub async fn work(self, kind: &str, runtime: Runtime) {
        let mut watched = self.watched.subscribe();
        let begun = runtime.stop.run_until_cancelled(watched.wait_for(Option::is_some)).await;
        let Some(all) = begun.and_then(Result::ok).and_then(|all| all.clone()) else { return };
        let Watched { watches, controllers } = &*all;
        let Some(controller) = controllers.iter().find(|controller| controller.kind() == kind) else { return };
        let ready = async {
            if runtime.stop.run_until_cancelled(watches.ready()).await == Some(true) {
                tracing::info!(kind, "every watched kind is listed; reconciling this kind");
            }
        };
        join(ready, controller.work(watches, runtime.clone())).await;
    }
}

/// Children, Secrets and ConfigMaps, whatever workload they belong to.
fn follow_built_in(watches: &Watches, stores: &Arc<Stores>, wake: &Arc<Wake>) {
    follow_children::<ConfigMap>(watches, stores, wake, ChildKind::ConfigMap);
    follow_children::<Service>(watches, stores, wake, ChildKind::Service);
    follow_children::<ServiceAccount>(watches, stores, wake, ChildKind::ServiceAccount);
    follow_children::<Role>(watches, stores, wake, ChildKind::Role);
    follow_children::<RoleBinding>(watches, stores, wake, ChildKind::RoleBinding);
    follow_children::<NetworkPolicy>(watches, stores, wake, ChildKind::NetworkPolicy);
    follow_children::<StatefulSet>(watches, stores, wake, ChildKind::StatefulSet);
    let (on, store) = (wake.clone(), stores.children(ChildKind::Deployment).clone());
    watches.follow::<DeploymentTrace, _>(watcher_config(), store, Trace::read_deployment, move |change| {
        on.child(ChildKind::Deployment, change);
    });
    let (on, store) = (wake.clone(), stores.secrets().clone());
    watches
        .follow::<PartialObjectMeta<Secret>, _>(watcher_config(), store, Trace::read, move |change| on.secret(change));
}

fn follow_children<K>(watches: &Watches, stores: &Arc<Stores>, wake: &Arc<Wake>, kind: ChildKind)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static,
{
    let on = wake.clone();
    let store = stores.children(kind).clone();
    watches
        .follow::<PartialObjectMeta<K>, _>(watcher_config(), store, Trace::read, move |change| on.child(kind, change));
}
