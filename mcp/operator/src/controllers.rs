//! The controllers: observe, plan, apply.

mod failure;
mod server;
mod stores;
mod traces;
mod wake;
mod webhook_config;

use std::sync::Arc;

use futures::future::join3;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{Resource, api::PartialObjectMeta, core::NamespaceResourceScope};
use portcullis::{
    controller::{Controller, Feeds, Namespaces, apply::Marks, paged},
    operator::Runtime,
};
use serde::de::DeserializeOwned;

use crate::plan::{
    ChildKind, Settings,
    names::{SERVER_FINALIZER, WEBHOOK_CONFIG_FINALIZER},
};

pub use stores::Stores;
pub use traces::{PodTrace, Trace};

use server::ServerController;
use stores::{tokens_of_config, tokens_of_server};
use wake::Wake;
use webhook_config::WebhookConfigController;

/// Both controllers and what they share.
#[derive(Clone, Debug)]
pub struct Controllers {
    stores: Arc<Stores>,
    settings: Settings,
    namespaces: Namespaces,
}

// === impl Controllers ===

impl Controllers {
    /// Controllers that fill and read `stores`.
    pub fn new(stores: Arc<Stores>, settings: Settings, namespaces: Namespaces) -> Self {
        Self { stores, settings, namespaces }
    }

    /// Watches, waits for every first list, then reconciles until [`Runtime::stop`]. Reconciles under way are finished.
    pub async fn run(self, runtime: Runtime) {
        let Self { stores, settings, namespaces } = self;
        let namespaces =
            if runtime.scope.restricted_to().is_some() { Namespaces::of(&runtime.scope) } else { namespaces };
        let feeds = Feeds::new(runtime.client.clone(), namespaces, runtime.stop.clone());
        let servers = Arc::new(ServerController::new(runtime.client.clone(), stores.clone(), settings));
        let configs = Arc::new(WebhookConfigController::new(stores.clone()));
        let (cleaned, released) = (servers.clone(), configs.clone());
        let of_servers = Controller::named("mcpserver-controller")
            .marks(traces::marks())
            .stored_in(stores.servers.clone())
            .found_by(tokens_of_server)
            .finalizer(SERVER_FINALIZER, move |leaving| {
                let cleaned = cleaned.clone();
                async move { cleaned.clean_up(leaving).await }
            });
        let of_configs = Controller::named("mcpwebhookconfig-controller")
            .marks(Marks::of("portcullis-mcpwebhookconfig"))
            .stored_in(stores.configs.clone())
            .found_by(tokens_of_config)
            .finalizer(WEBHOOK_CONFIG_FINALIZER, move |leaving| {
                let released = released.clone();
                async move { released.clean_up(leaving).await }
            });
        let wake = Wake::new(stores.clone(), of_servers.queue(), of_configs.queue());
        follow_all(&feeds, &stores, &wake);
        let on = wake.clone();
        let of_servers = of_servers.on_change(move |change| on.server(change));
        let of_configs = of_configs.on_change(move |change| wake.webhook_config(change));
        let ready = async {
            if feeds.ready().await {
                stores.set_ready(true);
                tracing::info!("every store holds its first list; reconciling");
            }
        };
        let work = join3(
            ready,
            of_servers.run_with(&feeds, runtime.clone(), |pass| servers.reconcile(pass)),
            of_configs.run_with(&feeds, runtime, |pass| configs.reconcile(pass)),
        );
        work.await;
        stores.set_ready(false);
        feeds.ended().await;
    }
}

fn follow_all(feeds: &Feeds, stores: &Arc<Stores>, wake: &Arc<Wake>) {
    follow_children::<ConfigMap>(feeds, stores, wake, ChildKind::ConfigMap);
    follow_children::<Service>(feeds, stores, wake, ChildKind::Service);
    follow_children::<ServiceAccount>(feeds, stores, wake, ChildKind::ServiceAccount);
    follow_children::<Role>(feeds, stores, wake, ChildKind::Role);
    follow_children::<RoleBinding>(feeds, stores, wake, ChildKind::RoleBinding);
    follow_children::<Deployment>(feeds, stores, wake, ChildKind::Deployment);
    follow_children::<StatefulSet>(feeds, stores, wake, ChildKind::StatefulSet);
    let on = wake.clone();
    feeds.follow::<PartialObjectMeta<Secret>, _>(paged(), stores.secrets.clone(), Trace::read, move |change| {
        on.secret(change);
    });
    let on = wake.clone();
    let pods = paged().labels(&PodTrace::selector());
    feeds.follow::<Pod, _>(pods, stores.pods.clone(), PodTrace::read, move |change| on.pod(change));
}

fn follow_children<K>(feeds: &Feeds, stores: &Arc<Stores>, wake: &Arc<Wake>, kind: ChildKind)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let on = wake.clone();
    let store = stores.children(kind).clone();
    feeds.follow::<PartialObjectMeta<K>, _>(paged(), store, Trace::read, move |change| on.child(kind, change));
}
