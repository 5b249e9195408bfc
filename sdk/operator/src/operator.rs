//! An operator as one value.

use std::sync::atomic::AtomicBool;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use portcullis_controller::{Action, BoxError, Controller, Kind, Reconcile};
use portcullis_manifest::{Access, CertificateMode, Installation, Overrides, ServiceRef, Switch};
use portcullis_webhook::Webhooks;

use super::components::{Components, LeaderTask, controller_task};
use super::error::RunError;
use super::installation::{CLUSTER_DOMAIN, InstallationError, SetupContext, checked, secret_of, service_of};

/// An operator: its kinds, rights, webhooks and controllers.
#[must_use = "an operator does nothing until it runs"]
pub struct Operator<A = ()> {
    pub(super) name: &'static str,
    pub(super) version: Option<&'static str>,
    pub(super) crds: Vec<CustomResourceDefinition>,
    pub(super) access: Access,
    pub(super) scope_lease: Option<&'static str>,
    /// The webhooks and controllers that need no arguments.
    pub(super) webhooks: Webhooks,
    pub(super) controllers: Vec<(String, LeaderTask)>,
    setup: Setup<A>,
    /// Whether the operator was embedded: a second run would share the stores of `controllers` and caches.
    pub(super) is_embedded: AtomicBool,
}

type Setup<A> = Box<dyn Fn(&A, &SetupContext) -> Result<Components, BoxError>>;

impl Operator {
    /// Creates an operator. Its roles, webhook configurations (`<name>-validating`), Service and Secrets are named
    /// after it. It has no arguments of its own; [`setup`](Self::setup) adds them.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            version: None,
            crds: Vec::new(),
            access: Access::default(),
            scope_lease: None,
            webhooks: Webhooks::new(),
            controllers: Vec::new(),
            setup: Box::new(|(), _| Ok(Components::default())),
            is_embedded: AtomicBool::default(),
        }
    }
}

impl<A> Operator<A> {
    /// Sets what `--version` prints, commonly `env!("CARGO_PKG_VERSION")`.
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the CRDs that the operator installs, each with all its versions ([`kube::core::crd::merge_crds`]). A CRD
    /// with a conversion is generated with its conversion stanza.
    pub fn crds(mut self, crds: Vec<CustomResourceDefinition>) -> Self {
        self.crds = crds;
        self
    }

    /// Adds rights, for webhook handlers and for tasks [on every replica](Components::replica_task). The rights of
    /// a controller follow from the controller ([`Components::controller`]); those for certificates and Leases are
    /// added as well.
    pub fn rbac(mut self, access: impl Into<Access>) -> Self {
        self.access = self.access.merge(access);
        self
    }

    /// Names the Lease by which a restricted installation holds its namespace, and that a cluster-wide one looks for;
    /// `<name>-namespace-scope` by default. An operator that replaces another one, or runs next to it, uses its name.
    pub fn scope_lease(mut self, name: &'static str) -> Self {
        self.scope_lease = Some(name);
        self
    }

    /// Adds webhooks. An operator whose webhooks read a cache can be [embedded](Self::embed) once;
    /// [`setup`](Self::setup) makes new ones each time.
    pub fn webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = self.webhooks.merge(webhooks);
        self
    }

    /// Adds a controller, as [`Components::controller`] does. An operator with a controller that was added here can be
    /// [embedded](Self::embed) once; [`setup`](Self::setup) makes new ones each time.
    pub fn controller<K, F, R, E>(mut self, controller: Controller<K>, reconcile: F) -> Self
    where
        K: Kind,
        F: Fn(Reconcile<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        self.controllers.push(controller_task(controller, reconcile));
        self
    }

    /// Sets a function that makes further webhooks and controllers from the operator's own arguments. State that they
    /// share is created in it.
    ///
    /// `Args` is a `clap::Args` for an operator with a [command line](Self::main): all commands but `migrate-storage`
    /// have these flags then. It is any type for one that is [embedded](Self::embed_with_args).
    pub fn setup<Args>(self, setup: impl Fn(&Args) -> Result<Components, BoxError> + 'static) -> Operator<Args> {
        self.setup_with_context(move |args, _| setup(args))
    }

    /// Does as [`setup`](Self::setup), for webhooks or controllers that behave differently in an installation that is
    /// restricted to a namespace, or whose webhooks are off. The set of webhooks and controllers must not depend on the
    /// context: `generate` and `run` have to agree on the rights and the webhook configurations.
    pub fn setup_with_context<Args>(
        self,
        setup: impl Fn(&Args, &SetupContext) -> Result<Components, BoxError> + 'static,
    ) -> Operator<Args> {
        let Self { name, version, crds, access, scope_lease, webhooks, controllers, setup: _, is_embedded } = self;
        let setup = Box::new(setup);
        Operator { name, version, crds, access, scope_lease, webhooks, controllers, setup, is_embedded }
    }

    /// The components that need no arguments, and those that these arguments make.
    pub(super) fn components(&self, args: &A, context: &SetupContext) -> Result<Components, RunError> {
        let mut components = (self.setup)(args, context).map_err(RunError::Setup)?;
        components.webhooks = self.webhooks.clone().merge(components.webhooks);
        let controllers = self.controllers.iter().cloned();
        let components = controllers.fold(components, |components, (name, task)| components.add(name, task));
        components.checked()?;
        Ok(components)
    }

    /// The installation in this namespace that has the default of every flag.
    ///
    /// # Errors
    /// When the operator's name cannot name a Service or a webhook configuration (it contains `-validating` or
    /// `-mutating`), and when `namespace` is no valid namespace name.
    pub fn installation(&self, namespace: &str) -> Result<Installation, InstallationError> {
        checked(self.default_installation(self.name, Some(namespace)))
    }

    /// The installation of this release with every default; without a namespace it is in `<release>-system`.
    pub(super) fn default_installation(&self, release: &str, namespace: Option<&str>) -> Installation {
        let namespace = namespace.map_or_else(|| format!("{release}-system"), str::to_owned);
        let service = ServiceRef { namespace: namespace.clone(), name: service_of(release), port: ServiceRef::PORT };
        Installation {
            operator: self.name,
            release: release.to_owned(),
            leader_election_namespace: namespace.clone(),
            namespace,
            restricted_to: None,
            scope_lease: self.scope_lease.map_or_else(|| format!("{}-namespace-scope", self.name), str::to_owned),
            service,
            cluster_domain: CLUSTER_DOMAIN.to_owned(),
            certificates: CertificateMode::default(),
            secret: secret_of(release),
            webhooks: Switch::default(),
            overrides: Overrides::default(),
        }
    }
}

impl<A> std::fmt::Debug for Operator<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("name", &self.name).field("crds", &self.crds.len()).finish_non_exhaustive()
    }
}
