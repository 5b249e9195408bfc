//! What a controller runs with.

use std::fmt;
use std::sync::Arc;

use kube::Client;
use portcullis_lease::{Leadership, Scope};
use portcullis_manifest::Switch;
use portcullis_metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::Validity;

/// What a controller is given.
#[derive(Clone)]
pub struct Runtime {
    /// A client with the rights of the controller's own ServiceAccount; with the operator's, for what runs on every
    /// replica.
    pub client: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// The release of the installation: what its objects are named after.
    pub release: String,
    /// Whether webhooks validate; when they are off, controllers do.
    pub webhooks: Switch,
    /// Which namespaces are this operator's. Ask it at the entry of every reconcile; for a controller, nothing is when
    /// this replica does not lead any more.
    pub scope: Scope,
    /// Whether this replica leads, and in which epoch.
    pub leadership: Leadership,
    /// Where `/metrics` comes from.
    pub metrics: Metrics,
    /// Cancelled when the controller has to end: with the process, or because another replica leads. It then returns
    /// soon, and is called again at the next hold.
    pub stop: CancellationToken,
    /// What controllers ask while webhooks are off.
    pub validity: Option<Arc<dyn Validity>>,
}

impl Runtime {
    /// A runtime for a controller of a process of your own, or of a test: webhooks are on, and it is the only operator
    /// of its kind, in its only replica. Its release is called `operator`.
    pub fn new(client: Client, namespace: impl Into<String>, stop: CancellationToken) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            release: "operator".to_owned(),
            webhooks: Switch::On,
            scope: Scope::everything(),
            leadership: Leadership::alone(),
            metrics: Metrics::new(),
            stop,
            validity: None,
        }
    }

    /// What [`Controller`](crate::Controller)s ask about objects while webhooks are off. An operator's controllers are given
    /// the validators that it registered.
    #[must_use]
    pub fn validated_by(mut self, validity: impl Validity) -> Self {
        self.validity = Some(Arc::new(validity));
        self
    }

    /// The rules that controllers have to ask.
    pub(crate) fn offline(&self) -> Option<Arc<dyn Validity>> {
        if self.webhooks.is_on() { None } else { self.validity.clone() }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("namespace", &self.namespace)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
