//! The CA in the webhook configurations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// First and longest pause after a write that failed.
const RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The names of the configurations that carry the bundle; empty ones are not looked after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configurations {
    /// Name of the validating configuration and the names of its webhooks that are ours.
    pub validating: Option<(String, Vec<String>)>,
    /// The same for the mutating one.
    pub mutating: Option<(String, Vec<String>)>,
}

/// Publishes the CA in the configurations and puts it back when something else takes it out (Helm, GitOps, a user's `apply`).
///
/// Each entry is addressed by its webhook's *name*: by index, a list that changes would get its bundles mixed up. The field manager owns nothing but
/// the `caBundle` fields, and nothing is sent while the bytes are right.
#[derive(Clone, Debug)]
pub struct Bundle {
    wanted: watch::Sender<Arc<str>>,
    published: watch::Sender<BTreeMap<String, Arc<str>>>,
    manager: String,
}

impl Bundle {
    /// A publisher that writes as field manager `<operator>-ca-bundle`.
    pub fn new(operator: &str, ca_pem: &str) -> Self {
        let (wanted, _) = watch::channel(Arc::from(ca_pem));
        Self { wanted, published: watch::Sender::default(), manager: format!("{operator}-ca-bundle") }
    }

    /// What callers must trust from now on.
    pub fn publish(&self, ca_pem: &str) {
        self.wanted.send_if_modified(|wanted| {
            let changed = **wanted != *ca_pem;
            if changed {
                *wanted = Arc::from(ca_pem);
            }
            changed
        });
    }

    /// Waits until every configuration has been seen to hold the bundle that is wanted now, and returns it. Has no deadline of its own: the caller
    /// reports why it is not ready meanwhile.
    pub async fn published(&self, configurations: &Configurations) -> Arc<str> {
        let names: Vec<_> =
            configurations.validating.iter().chain(&configurations.mutating).map(|(name, _)| name).collect();
        let mut seen = self.published.subscribe();
        loop {
            let wanted = self.wanted.borrow().clone();
            if names.iter().all(|name| seen.borrow().get(*name) == Some(&wanted)) {
                return wanted;
            }
            if seen.changed().await.is_err() {
                return wanted;
            }
        }
    }

    /// Looks after the configurations until `stop`.
    pub async fn maintain(&self, client: &Client, configurations: &Configurations, stop: &CancellationToken) {
        let validating = self.follow::<ValidatingWebhookConfiguration>(client, configurations.validating.as_ref());
        let mutating = self.follow::<MutatingWebhookConfiguration>(client, configurations.mutating.as_ref());
        tokio::select! {
            () = stop.cancelled() => {}
            _ = async { tokio::join!(validating, mutating) } => {}
        }
    }

    async fn follow<C: Configuration>(&self, client: &Client, configuration: Option<&(String, Vec<String>)>) {
        let Some((name, ours)) = configuration else { return };
        let api: Api<C> = Api::all(client.clone());
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let live = watcher(api.clone(), config).default_backoff().touched_objects();
        let renewed = stream::unfold(self.wanted.subscribe(), |mut wanted| async move {
            wanted.changed().await.ok()?;
            Some((Event::Renewed, wanted))
        });
        let mut events = std::pin::pin!(stream::select(live.map(Event::Live), renewed));
        let mut last: Option<C> = None;
        while let Some(event) = events.next().await {
            match event {
                Event::Live(Ok(live)) => last = Some(live),
                Event::Live(Err(error)) => {
                    warn!(%error, configuration = name, "cannot watch the webhook configuration");
                    continue;
                }
                Event::Renewed => {}
            }
            let Some(live) = &last else { continue };
            let mut pause = RETRY;
            loop {
                let wanted = self.wanted.borrow().clone();
                match self.apply(&api, name, ours, live, &wanted).await {
                    Ok(()) => {
                        self.published.send_modify(|published| {
                            published.insert(name.clone(), wanted);
                        });
                        break;
                    }
                    Err(error) => warn!(%error, configuration = name, retry_in = ?pause, "cannot publish the CA"),
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_RETRY);
            }
        }
    }

    /// Sends the bundle for those of our webhooks that exist, unless it is already there.
    async fn apply<C: Configuration>(
        &self,
        api: &Api<C>,
        name: &str,
        ours: &[String],
        live: &C,
        wanted: &str,
    ) -> Result<(), kube::Error> {
        let mine: Vec<_> = live.bundles().into_iter().filter(|(webhook, _)| ours.contains(webhook)).collect();
        if mine.iter().all(|(_, bundle)| bundle.as_deref() == Some(wanted.as_bytes())) {
            return Ok(());
        }
        let bundle = ByteString(wanted.as_bytes().to_vec());
        let webhooks: Vec<_> = mine
            .iter()
            .map(|(webhook, _)| json!({ "name": webhook, "clientConfig": { "caBundle": bundle } }))
            .collect();
        let patch = json!({ "apiVersion": C::api_version(&()), "kind": C::kind(&()), "metadata": { "name": name }, "webhooks": webhooks });
        api.patch(name, &PatchParams::apply(&self.manager).force(), &Patch::Apply(patch)).await?;
        info!(configuration = name, webhooks = webhooks.len(), "published the CA");
        Ok(())
    }
}

enum Event<C> {
    Live(Result<C, watcher::Error>),
    Renewed,
}

/// What the two configuration types have in common.
trait Configuration:
    Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
    + Send
    + 'static
{
    /// Name and CA bundle of each webhook.
    fn bundles(&self) -> Vec<(String, Option<Vec<u8>>)>;
}

macro_rules! configuration {
    ($kind:ty) => {
        impl Configuration for $kind {
            fn bundles(&self) -> Vec<(String, Option<Vec<u8>>)> {
                let webhooks = self.webhooks.iter().flatten();
                webhooks
                    .map(|w| (w.name.clone(), w.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.clone())))
                    .collect()
            }
        }
    };
}
configuration!(ValidatingWebhookConfiguration);
configuration!(MutatingWebhookConfiguration);
