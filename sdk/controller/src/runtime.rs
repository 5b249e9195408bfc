//! The environment of a controller.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use portcullis_lease::{Leadership, Scope};
use portcullis_manifest::Switch;
use portcullis_metrics::Metrics;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{Validation, Validators};

/// The environment of a controller: a client, its scope, metrics and a stop signal.
#[derive(Clone)]
pub struct Runtime {
    /// A client with the operator's ServiceAccount.
    pub client: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// The release name of the installation, after which its objects are named.
    pub release: String,
    /// Whether webhooks validate; when they are off, controllers do.
    pub webhooks: Switch,
    /// The namespaces that this operator owns. Check it at the start of every reconcile; a controller owns none once
    /// its replica no longer leads.
    pub scope: Scope,
    /// Whether this replica leads, and in which epoch.
    pub leadership: Leadership,
    /// The metrics that `/metrics` shows.
    pub metrics: Metrics,
    /// Cancelled when the controller has to stop: on shutdown, or when this replica no longer leads. Return soon then;
    /// the controller is called again when the replica leads again.
    pub stop: CancellationToken,
    /// The validators that controllers evaluate while webhooks are off.
    pub validators: Arc<dyn Validators>,
}

impl Runtime {
    /// A runtime for a controller in a process of your own or in a test: webhooks are on, this is the only replica of
    /// the only operator, and the release is named `operator`.
    pub fn new(client: Client, namespace: impl Into<String>, stop: CancellationToken) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            release: "operator".to_owned(),
            webhooks: Switch::On,
            scope: Scope::everything(),
            leadership: Leadership::always(),
            metrics: Metrics::new(),
            stop,
            validators: Arc::new(NoValidators),
        }
    }

    /// Sets the validators that [`Controller`](crate::Controller)s evaluate while webhooks are off. An operator's
    /// controllers get the validators that it registered.
    #[must_use]
    pub fn with_validators(mut self, validators: impl Validators) -> Self {
        self.validators = Arc::new(validators);
        self
    }

    /// The validators that controllers evaluate.
    pub(crate) fn offline(&self) -> Option<Arc<dyn Validators>> {
        (!self.webhooks.is_on()).then(|| self.validators.clone())
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

/// Validators that accept every object.
struct NoValidators;

impl Validators for NoValidators {
    fn validate<'a>(&'a self, _: &'a Value) -> BoxFuture<'a, Result<Validation, String>> {
        ready(Ok(Validation::default())).boxed()
    }
}
