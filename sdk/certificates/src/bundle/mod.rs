//! The CA in the webhook configurations and in the CRDs.
//!
//! [`Bundle`] knows what callers must trust. For each object of its [`Configurations`] a `publisher` watches the
//! object, and writes where the bundle differs; `state` has the last known state of each, and a caller that waits for
//! the bundle to be everywhere gets what is missing (`missing`). `target` has what the three kinds of objects share.
//! `published` reads them once; `addition` adds to them once. Only it and `publisher` write to them.

mod addition;
mod missing;
mod published;
mod publisher;
mod state;
mod target;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::metrics::CertificateMetrics;
use super::{Configurations, ServingCertificate, TimeOfDay};
pub(super) use addition::Addition;
pub use missing::Changes;
pub use published::{OwnEntry, PublishedEntry, PublishedObject, read_published};
pub(super) use publisher::FIRST_PAUSE;
use publisher::Publisher;
use state::{States, Wanted};
use target::{CONVERSION, object};

/// Kind and name of each object that carries the bundle.
fn objects(configurations: &Configurations) -> Vec<String> {
    let Configurations { validating, mutating, crds } = configurations;
    let validating = validating.iter().map(|(name, _)| object::<ValidatingWebhookConfiguration>(name));
    let mutating = mutating.iter().map(|(name, _)| object::<MutatingWebhookConfiguration>(name));
    let crds = crds.iter().map(|name| object::<CustomResourceDefinition>(name));
    validating.chain(mutating).chain(crds).collect()
}

/// The field manager as which an operator publishes.
pub(super) fn manager(operator: &str) -> String {
    format!("{operator}-ca-bundle")
}

/// Publishes the CA in the webhook configurations and the CRDs' conversion stanzas, and restores it when something else
/// removes it (Helm, GitOps, a user's `apply`). For [`ProvidedCertificates`](super::ProvidedCertificates), whose CA
/// others publish, it only observes.
///
/// Its field manager owns only `caBundle`, so that others can still apply the manifests. Nothing is sent while the
/// bytes are right. To remove the conversion from a CRD by server-side apply, first remove `spec.conversion.webhook` by
/// a patch: its `caBundle` belongs to this field manager, and the API server rejects what would be left of the stanza.
#[derive(Clone, Debug)]
pub struct Bundle {
    wanted: watch::Sender<Wanted>,
    /// The last known state of each object, and since when it has been so.
    states: watch::Sender<States>,
    /// The field manager of its writes; `None` when it only observes.
    manager: Option<String>,
    /// The advice to the owner of a wrong bundle, when it only observes.
    cure: String,
    /// Whether nothing may be published yet when everything else is ready.
    published_later: bool,
    /// The names of the Services through which we are called; any when there are none.
    services: Vec<String>,
    /// The Secret in which all replicas read the bundle to publish; `None` if there is one replica only.
    origin: Option<Origin>,
    /// The pause after the first write that failed or was undone; the next ones are longer.
    first_pause: Duration,
    metrics: CertificateMetrics,
    time_of_day: TimeOfDay,
}

/// The Secret that says what is to be published.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) secrets: Api<Secret>,
    pub(super) name: String,
}

impl Bundle {
    /// A publisher that writes as field manager `<operator>-ca-bundle`.
    pub fn new(operator: &str, ca_pem: &str) -> Self {
        let manager = Some(manager(operator));
        Self { manager, ..Self::wanting(Wanted::Held(Arc::from(ca_pem))) }
    }

    /// An observer, which writes nothing: another program publishes, and it reports whether callers accept the served
    /// chain, with the fix if not.
    pub(super) fn observing(material: &ServingCertificate, cure: &str) -> Self {
        Self { cure: cure.to_owned(), ..Self::wanting(Wanted::accepted(material)) }
    }

    fn wanting(wanted: Wanted) -> Self {
        Self {
            wanted: watch::Sender::new(wanted),
            states: watch::Sender::default(),
            manager: None,
            cure: String::new(),
            published_later: false,
            services: Vec::new(),
            origin: None,
            first_pause: FIRST_PAUSE,
            metrics: CertificateMetrics::default(),
            time_of_day: TimeOfDay::system(),
        }
    }

    /// Leaves entries alone that call a Service by another name than these, as in `hooks.shop.svc`: they belong to
    /// another installation of the operator, whose webhooks could not be called with this CA.
    #[must_use]
    pub fn with_services<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.services = names.into_iter().map(Into::into).collect();
        self
    }

    /// Looks into this Secret before it writes, and writes nothing that is not what its `ca.crt` says any more: other
    /// replicas publish too, and one that has slept through a change must not undo it.
    #[must_use]
    pub(super) fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Declares that another program publishes only once the operator is ready. An object without a bundle is then not
    /// waited for, one with another bundle is.
    #[must_use]
    pub(super) fn published_later(mut self) -> Self {
        self.published_later = true;
        self
    }

    /// Begins with this pause where a write failed or was undone. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn pausing(mut self, first: Duration) -> Self {
        self.first_pause = first;
        self
    }

    #[must_use]
    pub(super) fn with_metrics(mut self, metrics: CertificateMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    #[must_use]
    pub(super) fn timed_by(mut self, time_of_day: TimeOfDay) -> Self {
        self.time_of_day = time_of_day;
        self
    }

    /// Sets the bundle that callers must trust from now on.
    pub fn publish(&self, ca_pem: &str) {
        self.want(Wanted::Held(Arc::from(ca_pem)));
    }

    /// Sets the pair that callers must accept from now on, when another program publishes its CA.
    pub(super) fn expect(&self, material: &ServingCertificate) {
        self.want(Wanted::accepted(material));
    }

    fn want(&self, new: Wanted) {
        self.wanted.send_if_modified(|wanted| {
            let changed = *wanted != new;
            if changed {
                *wanted = new;
            }
            changed
        });
    }

    /// Maintains the bundle in the objects until `stop` is cancelled.
    pub async fn maintain(&self, client: &Client, configurations: &Configurations, stop: &CancellationToken) {
        let Configurations { validating, mutating, crds } = configurations;
        let conversion = [CONVERSION.to_owned()];
        let validating = validating
            .iter()
            .map(|(name, ours)| Publisher::<ValidatingWebhookConfiguration>::new(self, client, name, ours).follow());
        let mutating = mutating
            .iter()
            .map(|(name, ours)| Publisher::<MutatingWebhookConfiguration>::new(self, client, name, ours).follow());
        let crds = crds
            .iter()
            .map(|name| Publisher::<CustomResourceDefinition>::new(self, client, name, &conversion).follow());
        tokio::select! {
            () = stop.cancelled() => {}
            _ = async { tokio::join!(join_all(validating), join_all(mutating), join_all(crds)) } => stop.cancelled().await,
        }
    }
}
