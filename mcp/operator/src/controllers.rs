//! The controllers: observe, plan, apply.

mod custom;
mod error;
mod events;
mod failure;
mod server;
mod stores;
mod traces;
mod wake;
mod webhook_config;

use std::sync::Arc;

use futures::future::join;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Client, Resource,
    api::PartialObjectMeta,
    core::{DeserializeGuard, NamespaceResourceScope},
};
use mcp_api::{v1alpha1::MCPWebhookConfig, v1beta1::MCPServer};
use serde::de::DeserializeOwned;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    apply::ChildKind,
    cache::{Feeds, Scope, paged},
    plan::Settings,
    work::Queue,
};

pub use custom::Custom;
pub use error::ReconcileError;
pub use stores::Stores;
pub use traces::{PodTrace, Trace};

use server::ServerController;
use wake::Wake;
use webhook_config::WebhookConfigController;

/// How many objects of a kind are reconciled at once.
const WORKERS: usize = 8;

/// Both controllers and what they share.
#[derive(Clone, Debug)]
pub struct Controllers {
    stores: Arc<Stores>,
    settings: Settings,
    scope: Scope,
}

// === impl Controllers ===

impl Controllers {
    /// Controllers that fill and read `stores`.
    pub fn new(stores: Arc<Stores>, settings: Settings, scope: Scope) -> Self {
        Self { stores, settings, scope }
    }

    /// Watches, waits for every first list, then reconciles until `shutdown`. Reconciles under way are finished.
    pub async fn run(self, client: Client, shutdown: CancellationToken) {
        let wake = Wake::new(self.stores.clone());
        let tasks = TaskTracker::new();
        let feeds = Feeds::new(client.clone(), self.scope, tasks.clone(), shutdown.clone());
        follow_all(&feeds, &self.stores, &wake);
        tasks.close();
        if feeds.ready().await {
            self.stores.set_ready();
            tracing::info!("every store holds its first list; reconciling");
            let servers = ServerController::new(client.clone(), self.stores.clone(), self.settings);
            let configs = WebhookConfigController::new(client, self.stores);
            join(
                run(&wake.servers, &shutdown, |key| servers.reconcile(key)),
                run(&wake.configs, &shutdown, |key| configs.reconcile(key)),
            )
            .await;
        }
        tasks.wait().await;
    }
}

async fn run<F>(queue: &Queue, shutdown: &CancellationToken, reconcile: impl Fn(crate::work::Key) -> F)
where
    F: Future<Output = Result<crate::work::Next, ReconcileError>>,
{
    queue.run(WORKERS, shutdown, reconcile).await;
}

fn follow_all(feeds: &Feeds, stores: &Arc<Stores>, wake: &Arc<Wake>) {
    let on = wake.clone();
    feeds.follow::<DeserializeGuard<MCPServer>, _>(paged(), stores.servers.clone(), Custom::server, move |change| {
        on.server(change);
    });
    let on = wake.clone();
    feeds.follow::<DeserializeGuard<MCPWebhookConfig>, _>(
        paged(),
        stores.configs.clone(),
        Custom::webhook_config,
        move |change| {
            on.webhook_config(change);
        },
    );
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
