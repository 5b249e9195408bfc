//! An [`Operator`] as one value, and the command line of its binary.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use portcullis::operator::{Operator, Components};
//! use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
//!
//! #[derive(clap::Args)]
//! struct Args {
//!     /// Refuse ConfigMaps with more entries than this.
//!     #[arg(long, default_value_t = 10)]
//!     max_entries: usize,
//! }
//!
//! fn main() -> ExitCode {
//!     Operator::named("small-maps")
//!         .setup(|args: &Args| {
//!             let max = args.max_entries;
//!             let check = move |new: Arc<ConfigMap>, _: Context| async move {
//!                 match new.data.as_ref().map_or(0, |data| data.len()) {
//!                     n if n > max => Verdict::deny(format!("{n} entries, {max} are allowed")).cause("data", "too many entries"),
//!                     _ => Verdict::allow(),
//!                 }
//!             };
//!             Ok(Components::new(Webhooks::new().validate(Validate::<ConfigMap>::named("small").on_create_or_update(check))))
//!         })
//!         .main()
//! }
//! ```
//!
//! The binary then has these subcommands:
//!
//! - `generate crds|webhooks|policies|rbac|operator|certificates` writes manifests from the same value that is served,
//!   with exactly the rights that the operator needs; `operator` is a whole installation. `--out DIR` writes files,
//!   `--check` names the files that differ.
//! - `certs ensure|publish|rotate|show` manages the webhooks' certificates from outside of a replica
//!   ([`certificates`](portcullis_certificates)).
//! - `doctor` (feature `doctor`) reports what keeps an installation from working, each finding with the command that
//!   fixes it (crate `portcullis-doctor`); `doctor explain -f FILE` names the webhook rules that a manifest breaks,
//!   without a cluster.
//! - `migrate-storage` (feature `migrate`) rewrites every stored object in the storage version of its CRD, then drops
//!   the versions that store nothing any more from `status.storedVersions`, so that they can be removed from the CRD.
//! - `dev` (feature `dev`) serves the admission webhooks of any cluster from this machine, with a throw-away
//!   certificate: it creates webhook configurations that call a URL. It first asks the API server which name or address
//!   of this machine it can reach, or takes the `--public-url` of a tunnel. Everything that it creates is labelled with
//!   its owner and its expiry, removed when the process ends, and swept by the next session after a kill (crate
//!   `portcullis-dev`).
//! - `run` serves the webhooks on `--bind`, `/healthz`, `/readyz` and `/metrics` on `--health-bind`, and runs the
//!   controllers. It is ready once its CA is in the webhook configurations and
//!   CRDs and a TLS handshake with itself succeeds under it; until then `/readyz` says what is missing. The controllers
//!   run in the leading replica ([`scopes`](portcullis_lease)); one that fails ends the process with its error. After
//!   SIGTERM, controllers end at once, webhooks are served for `--drain-delay` more while callers learn of it, and the
//!   calls in flight are answered. A second signal ends the process at once, as an error. Where objects are converted,
//!   the controllers start when the API server can call the conversion, or after half a minute.
//!
//! [`Operator::embed`] runs an operator inside of a process of your own.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod background;
mod caches;
mod certs;
mod cli;
mod connect;
mod controllers;
mod convertible;
#[cfg(feature = "dev")]
mod dev;
#[cfg(feature = "doctor")]
mod doctor;
mod embed;
mod endpoint;
mod error;
mod flags;
mod generate;
mod health;
mod input;
mod installation;
mod leases;
mod memory_limit;
#[cfg(feature = "migrate")]
mod migrate;
mod overrides;
mod run;
mod shutdown;
mod storage;
mod tasks;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use portcullis_manifest::Access;
use prometheus_client::registry::Metric;

pub use cli::NoArgs;
pub use embed::{EmbedOptions, EmbeddedOperator, Readiness};
pub use error::{ComponentsError, RunError};
pub use installation::{InstallationError, SetupContext};
/// The error of [`Operator::setup`] and of tasks, whatever its type.
pub use portcullis_controller::BoxError;
/// The environment of a controller or task: client, scope, leadership, and the token that stops it.
pub use portcullis_controller::Runtime;
pub use portcullis_manifest::{Installation, Switch};

use portcullis_certificates::{RotationTiming, TimeOfDay};
use portcullis_controller::{Action, Controller, Kind, Reconcile};
use portcullis_metrics::OwnMetrics;
use portcullis_webhook::Webhooks;

/// An operator: its kinds, rights, webhooks and controllers.
#[must_use = "an operator does nothing until main() is called"]
pub struct Operator<A: clap::Args = NoArgs> {
    name: &'static str,
    version: Option<&'static str>,
    crds: Vec<CustomResourceDefinition>,
    access: Access,
    scope_lease: Option<&'static str>,
    /// The webhooks and controllers that need no arguments.
    webhooks: Webhooks,
    controllers: Vec<(String, Leading)>,
    setup: Setup<A>,
    /// Whether an [`EmbeddedOperator`] was made: another one would share the stores of `controllers` and caches.
    is_embedded: AtomicBool,
}

type Setup<A> = Box<dyn Fn(&A, &SetupContext) -> Result<Components, BoxError>>;
type Task = Arc<dyn Fn(Runtime) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A task of the leading replica, and the access that it needs.
#[derive(Clone)]
struct Leading {
    access: Access,
    run: Task,
}

/// The webhooks that an operator serves and the controllers that it runs, made from its arguments
/// ([`Operator::setup`]).
#[derive(Default)]
#[must_use = "components do nothing until the operator runs them"]
pub struct Components {
    webhooks: Webhooks,
    controllers: BTreeMap<String, Leading>,
    everywhere: BTreeMap<String, Task>,
    rotation_timing: RotationTiming,
    time_of_day: TimeOfDay,
    metrics: OwnMetrics,
    /// The first thing that does not fit: two controllers of one name, or two tasks, or a metric.
    unfit: Option<ComponentsError>,
}

impl Components {
    /// Components with these webhooks and no controller.
    pub fn new(webhooks: Webhooks) -> Self {
        Self { webhooks, ..Self::default() }
    }

    /// Adds a controller, which runs in the leading replica. Two controllers of one name are an error at startup.
    ///
    /// The operator's ServiceAccount gets the rights that [follow](Controller::access) from the kinds that the
    /// controller reconciles, owns and watches. [`Controller::rbac`] adds rights that `reconcile` needs beyond them.
    pub fn controller<K, F, R, E>(self, controller: Controller<K>, reconcile: F) -> Self
    where
        K: Kind,
        F: Fn(Reconcile<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let (name, leading) = leading(controller, reconcile);
        self.lead(name, leading)
    }

    fn lead(mut self, name: String, leading: Leading) -> Self {
        match self.controllers.entry(name) {
            Entry::Vacant(vacant) => {
                vacant.insert(leading);
            }
            Entry::Occupied(taken) => {
                self.unfit.get_or_insert_with(|| ComponentsError::DuplicateController(taken.key().clone()));
            }
        }
        self
    }

    /// Adds a task that runs in the leading replica, where a [`Controller`] does not suffice: until [`Runtime::stop`]
    /// is cancelled, and again when this replica leads again. When it returns early or fails, the process ends with its
    /// error.
    ///
    /// `access` is added to the rights of the operator's ServiceAccount. A list of
    /// [`Grant`](portcullis_manifest::Grant)s applies to what it watches: every namespace, or the one that an
    /// installation is restricted to. [`Access::in_own_namespace`] adds grants in the operator's own namespace, in
    /// whose names `{release}` stands for [`Runtime::release`].
    pub fn while_leading<F, R>(self, name: &str, access: impl Into<Access>, run: F) -> Self
    where
        F: Fn(Runtime) -> R + Send + Sync + 'static,
        R: Future<Output: Outcome> + Send + 'static,
    {
        self.lead(name.to_owned(), Leading { access: access.into(), run: boxed(run) })
    }

    /// Adds a task that every replica runs as long as its process, whether it leads or not. (Objects that webhooks read
    /// need no task: see [`Cache`](portcullis_controller::cache::Cache).) [`Runtime::stop`] is cancelled when the last
    /// webhook call is answered. The task must not write: its [`Runtime::leadership`] never holds. [`Operator::rbac`]
    /// grants what it reads.
    pub fn on_every_replica<F, R>(mut self, name: &str, task: F) -> Self
    where
        F: Fn(Runtime) -> R + Send + Sync + 'static,
        R: Future<Output: Outcome> + Send + 'static,
    {
        if self.everywhere.insert(name.to_owned(), boxed(task)).is_some() {
            self.unfit.get_or_insert_with(|| ComponentsError::DuplicateController(name.to_owned()));
        }
        self
    }

    /// Sets how long certificates that the operator issues itself are valid, when they are replaced, and how long a
    /// rotation takes, in `run` and `certs` alike. A timing under which rotations would never finish is
    /// [refused](RotationTiming::check) when certificates are issued.
    pub fn rotation_timing(mut self, timing: RotationTiming) -> Self {
        self.rotation_timing = timing;
        self
    }

    /// Sets the clock by which certificates are checked and issued, instead of the machine's: for tests with a wrong
    /// clock, or with certificates that are about to expire.
    pub fn time_of_day(mut self, time_of_day: TimeOfDay) -> Self {
        self.time_of_day = time_of_day;
        self
    }

    /// Serves a metric of your own at `/metrics`; the name of a counter gets the suffix `_total`. Keep a clone of the
    /// metric where handlers or controllers count. A name that is taken, begins with `portcullis_`, or is invalid in
    /// Prometheus is an error at startup.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portcullis::k8s_openapi::api::core::v1::ConfigMap;
    /// use portcullis::operator::Components;
    /// use portcullis::prometheus_client::metrics::counter::Counter;
    /// use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
    ///
    /// let large = Counter::<u64>::default();
    /// let counted = large.clone();
    /// let count = move |new: Arc<ConfigMap>, _: Context| {
    ///     if new.data.as_ref().is_some_and(|data| data.len() > 100) {
    ///         counted.inc();
    ///     }
    ///     async { Verdict::allow() }
    /// };
    /// let webhooks = Webhooks::new().validate(Validate::<ConfigMap>::named("large").on_create_or_update(count));
    /// let help = "ConfigMaps with more than 100 entries";
    /// let components = Components::new(webhooks).metric("shop_large_maps", help, large);
    /// ```
    pub fn metric(mut self, name: &str, help: &str, metric: impl Metric) -> Self {
        if let Err(error) = self.metrics.register(name, help, metric) {
            self.unfit.get_or_insert(ComponentsError::InvalidMetric(error));
        }
        self
    }

    /// Returns the first error of the registration.
    fn checked(&self) -> Result<(), ComponentsError> {
        self.unfit.clone().map_or(Ok(()), Err)
    }
}

/// A controller as a task of the leading replica, with its name.
fn leading<K, F, R, E>(controller: Controller<K>, reconcile: F) -> (String, Leading)
where
    K: Kind,
    F: Fn(Reconcile<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    let (name, access) = (controller.name().to_owned(), controller.access());
    let controller = Arc::new((controller, reconcile));
    let run = boxed(move |runtime| {
        let controller = controller.clone();
        async move { controller.0.term(runtime, |request| (controller.1)(request)).await }
    });
    (name, Leading { access, run })
}

fn boxed<F, R>(task: F) -> Task
where
    F: Fn(Runtime) -> R + Send + Sync + 'static,
    R: Future<Output: Outcome> + Send + 'static,
{
    Arc::new(move |runtime| {
        let task = task(runtime);
        Box::pin(async move { task.await.result() })
    })
}

/// The result of an operator's task: `()`, as [`Controller::run`] returns, which retries what fails; or a `Result`,
/// whose error, of any type, ends the process.
pub trait Outcome {
    /// Converts it to a result, whose error ends the process.
    ///
    /// # Errors
    /// With the error of the task, if it returned one.
    fn result(self) -> Result<(), BoxError>;
}

impl Outcome for () {
    fn result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> Outcome for Result<(), E> {
    fn result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

impl Operator {
    /// Creates an operator of this name, after which roles, webhook configurations (`<name>-validating`), Service and
    /// Secrets are named. It has no arguments of its own; [`setup`](Self::setup) adds them.
    pub fn named(name: &'static str) -> Self {
        Self {
            name,
            version: None,
            crds: Vec::new(),
            access: Access::default(),
            scope_lease: None,
            webhooks: Webhooks::new(),
            controllers: Vec::new(),
            setup: Box::new(|_, _| Ok(Components::default())),
            is_embedded: AtomicBool::default(),
        }
    }
}

impl<A: clap::Args> Operator<A> {
    /// Sets what `--version` prints, commonly `env!("CARGO_PKG_VERSION")`.
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the CRDs that the operator installs, each with all its versions ([`kube::core::crd::merge_crds`]). A CRD
    /// whose conversion is among the webhooks is generated with its conversion stanza.
    pub fn crds(mut self, crds: Vec<CustomResourceDefinition>) -> Self {
        self.crds = crds;
        self
    }

    /// Adds rights, for webhook handlers and for tasks [on every replica](Components::on_every_replica). The rights of
    /// a controller follow from the controller ([`Components::controller`]); those for certificates and Leases are
    /// added as well.
    pub fn rbac(mut self, access: impl Into<Access>) -> Self {
        self.access = self.access.and(access);
        self
    }

    /// Names the Lease by which a restricted installation holds its namespace, and that a cluster-wide one looks for;
    /// `<name>-namespace-scope` by default. Take the name that an operator uses which this one replaces, or runs next to.
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
        self.controllers.push(leading(controller, reconcile));
        self
    }

    /// Sets a function that makes further webhooks and controllers from arguments of the operator's own. Create state
    /// that they share in it. `Args` is a `clap::Args`, whose flags `run`, `generate` and `dev` then have.
    pub fn setup<Args: clap::Args>(
        self,
        setup: impl Fn(&Args) -> Result<Components, BoxError> + 'static,
    ) -> Operator<Args> {
        self.setup_with_context(move |args, _| setup(args))
    }

    /// Does as [`setup`](Self::setup), for webhooks or controllers that behave differently in an installation that is
    /// restricted to a namespace, or whose webhooks are off. Which webhooks and controllers there are must not depend
    /// on it: `generate` makes one chart for all installations.
    pub fn setup_with_context<Args: clap::Args>(
        self,
        setup: impl Fn(&Args, &SetupContext) -> Result<Components, BoxError> + 'static,
    ) -> Operator<Args> {
        let Self { name, version, crds, access, scope_lease, webhooks, controllers, setup: _, is_embedded } = self;
        let setup = Box::new(setup);
        Operator { name, version, crds, access, scope_lease, webhooks, controllers, setup, is_embedded }
    }

    /// Parses the command line and runs the subcommand. Call it as the binary's `main`, before anything that uses TLS:
    /// it installs the process's crypto provider.
    pub fn main(self) -> ExitCode {
        self.main_with_args(std::env::args_os())
    }

    /// Does as [`main`](Self::main), with this command line: for a binary that takes another one, and translates it.
    /// The first argument is the program's name.
    pub fn main_with_args(self, args: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
        cli::main(self, args.into_iter().map(Into::into).collect())
    }

    /// The command line as a [`clap::Command`], for shell completions and manual pages. Call
    /// [`debug_assert`](clap::Command::debug_assert) on it in a test: clap looks in debug builds alone for an argument of
    /// the operator's own that has the name of another one.
    pub fn command(&self) -> clap::Command {
        cli::command(self)
    }

    /// The components that need no arguments, and those that these arguments make.
    fn components(&self, args: &A, context: &SetupContext) -> Result<Components, RunError> {
        let mut components = (self.setup)(args, context).map_err(RunError::Setup)?;
        components.webhooks = self.webhooks.clone().merge(components.webhooks);
        let controllers = self.controllers.iter().cloned();
        let components = controllers.fold(components, |components, (name, leading)| components.lead(name, leading));
        components.checked()?;
        Ok(components)
    }

    /// The installation in this namespace that has the default of every flag.
    ///
    /// # Errors
    /// When the operator's name cannot name a Service or a webhook configuration (it contains `-validating` or
    /// `-mutating`), and when `namespace` is no valid namespace name.
    pub fn installation(&self, namespace: &str) -> Result<Installation, InstallationError> {
        self.resolve(&installation::InstallationFlags::default(), Some(namespace))
    }

    /// The installation that these flags mean.
    fn resolve(
        &self,
        flags: &installation::InstallationFlags,
        namespace: Option<&str>,
    ) -> Result<Installation, InstallationError> {
        let installation = flags.resolve(self.name, namespace)?;
        let scope_lease = self.scope_lease.map_or(installation.scope_lease, str::to_owned);
        Ok(Installation { scope_lease, ..installation })
    }
}

impl<A: clap::Args> std::fmt::Debug for Operator<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("name", &self.name).field("crds", &self.crds.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Components {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let controllers: Vec<_> = self.controllers.keys().collect();
        let everywhere: Vec<_> = self.everywhere.keys().collect();
        f.debug_struct("Components")
            .field("webhooks", &self.webhooks)
            .field("controllers", &controllers)
            .field("everywhere", &everywhere)
            .field("metrics", &self.metrics)
            .field("rotation_timing", &self.rotation_timing)
            .field("time_of_day", &self.time_of_day)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
