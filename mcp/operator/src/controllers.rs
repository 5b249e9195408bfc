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
use mcp_api::{v1alpha1::MCPWebhookConfig, v1beta1::MCPServer};
use portcullis::{
    controller::{Controller, Feeds, Namespaces, apply::Marks, paged},
    operator::Runtime,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

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
    watched: watch::Sender<Option<Arc<Watched>>>,
}

/// The watches of the process, and who works on what they bring.
struct Watched {
    feeds: Feeds,
    servers: Arc<ServerController>,
    configs: Arc<WebhookConfigController>,
    of_servers: Controller<MCPServer>,
    of_configs: Controller<MCPWebhookConfig>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("feeds", &self.feeds).finish_non_exhaustive()
    }
}

// === impl Controllers ===

impl Controllers {
    /// Controllers that fill and read `stores`.
    pub fn new(stores: Arc<Stores>, settings: Settings, namespaces: Namespaces) -> Self {
        Self { stores, settings, namespaces, watched: watch::Sender::new(None) }
    }

    /// Fills the stores until [`Runtime::stop`]: in every replica, because its webhooks read them.
    pub async fn watch(self, runtime: Runtime) {
        let Self { stores, settings, namespaces, watched } = self;
        let namespaces =
            if runtime.scope.restricted_to().is_some() { Namespaces::of(&runtime.scope) } else { namespaces };
        let feeds = Feeds::new(runtime.client.clone(), namespaces, runtime.stop.clone()).counted_in(&runtime.metrics);
        let servers = Arc::new(ServerController::new(runtime.client.clone(), stores.clone(), settings));
        let configs = Arc::new(WebhookConfigController::new(stores.clone()));
        let (cleaned, released) = (servers.clone(), configs.clone());
        let of_servers = owning_children(Controller::named("mcpserver-controller"), &stores)
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
        of_servers.follow(&feeds);
        of_configs.follow(&feeds);
        let all = Arc::new(Watched { feeds, servers, configs, of_servers, of_configs });
        watched.send_replace(Some(all.clone()));
        if all.feeds.ready().await {
            stores.set_ready(true);
            tracing::info!("the stores are filled");
            runtime.stop.cancelled().await;
        }
        stores.set_ready(false);
        all.feeds.ended().await;
    }

    /// Reconciles what [`watch`](Self::watch) brings until [`Runtime::stop`]: in the replica that leads. Reconciles under
    /// way are finished.
    pub async fn work(self, runtime: Runtime) {
        let mut watched = self.watched.subscribe();
        let begun = runtime.stop.run_until_cancelled(watched.wait_for(Option::is_some)).await;
        let Some(all) = begun.and_then(Result::ok).and_then(|all| all.clone()) else { return };
        let Watched { feeds, servers, configs, of_servers, of_configs } = &*all;
        let ready = async {
            if runtime.stop.run_until_cancelled(feeds.ready()).await == Some(true) {
                tracing::info!("every store holds its first list; reconciling");
            }
        };
        let on_servers = of_servers.work(feeds, runtime.clone(), |pass| servers.reconcile(pass));
        let on_configs = of_configs.work(feeds, runtime.clone(), |pass| configs.reconcile(pass));
        join3(ready, on_servers, on_configs).await;
    }
}

/// What the controller of servers may make, each kind in the store that webhooks and plans read.
fn owning_children(controller: Controller<MCPServer>, stores: &Stores) -> Controller<MCPServer> {
    let of = |kind| stores.children(kind).clone();
    controller
        .owns_in::<ConfigMap, _>(of(ChildKind::ConfigMap))
        .owns_in::<Service, _>(of(ChildKind::Service))
        .owns_in::<ServiceAccount, _>(of(ChildKind::ServiceAccount))
        .owns_in::<Role, _>(of(ChildKind::Role))
        .owns_in::<RoleBinding, _>(of(ChildKind::RoleBinding))
        .owns_in::<Deployment, _>(of(ChildKind::Deployment))
        .owns_in::<StatefulSet, _>(of(ChildKind::StatefulSet))
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
