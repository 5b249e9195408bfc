//! An operator as one value, and the command line of its binary.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use portcullis::operator::{Operator, Parts};
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
//!             let judge = move |new: Arc<ConfigMap>, _: Context| async move {
//!                 match new.data.as_ref().map_or(0, |data| data.len()) {
//!                     n if n > max => Verdict::deny(format!("{n} entries, {max} are allowed")).cause("data", "too many entries"),
//!                     _ => Verdict::allow(),
//!                 }
//!             };
//!             Ok(Parts::new(Webhooks::new().validate(Validate::<ConfigMap>::named("small").on_create(judge))))
//!         })
//!         .main()
//! }
//! ```
//!
//! The binary then has
//!
//! - `generate crds|webhooks|policies|rbac|operator|certificates`: manifests from the same value that is served, with the rights
//!   that the operator needs and no others; `operator` is a whole installation. `--out DIR` writes files, `--check`
//!   compares them and names those that differ; `--format helm` makes them the templates of a chart.
//! - `certs ensure|publish|rotate|show`: does with certificates, from outside, what a replica does
//!   ([`certificates`](crate::certificates)).
//! - `doctor`: looks at an installation and says what keeps it from working, each with the command that mends it
//!   ([`doctor`](crate::doctor)); `doctor explain -f FILE` names the rules of webhooks that a manifest breaks, without a cluster.
//! - `migrate-storage`: writes every stored object again, in the storage version of its CRD, and takes the versions
//!   that nothing is stored in any more out of `status.storedVersions`, so that they can be removed from the CRD.
//! - `dev`: serves the webhooks from this machine to any cluster, with a certificate that is thrown away: configurations
//!   of its own that call a URL, and the conversion of CRDs borrowed. It asks the API server first by which name or
//!   address it reaches this machine, or takes the `--public-url` of a tunnel. All of it is marked with its owner and its
//!   end, removed when the process ends, and swept by the next one where it was killed. `--controllers` runs the
//!   controllers too, while no installed replica leads.
//! - `run`: serves the webhooks on `--bind`, `/healthz`, `/readyz` and `/metrics` on `--health-bind`, and runs the
//!   controllers, each under a ServiceAccount of its own. It is ready once its CA is in the webhook configurations and CRDs and a TLS handshake with itself
//!   succeeds under it; until then `/readyz` says what is missing. The controllers run in the one replica that leads
//!   ([`scopes`](crate::scopes)); one that fails ends the process with its error. After SIGTERM, controllers end at once
//!   and webhooks are served for `--drain-delay` more, while callers learn of it; then the calls under way are answered.
//!   A second signal ends the process at once, as an error. Where objects are converted, the controllers begin when the
//!   API server can call the conversion, or after half a minute.
//!
//! A process of your own runs an operator with [`Operator::embed`].

mod access;
mod accounts;
mod caches;
mod certs;
mod cli;
mod client_ca;
mod connect;
mod controllers;
mod dev;
mod doctor;
mod embed;
mod endpoint;
mod error;
mod generate;
mod health;
mod input;
mod installation;
mod leases;
mod memory;
mod migrate;
mod overrides;
mod run;
mod taken;
mod tasks;
mod work;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use portcullis_manifest::{Access, Overrides};
use prometheus_client::registry::Metric;
use tokio_util::sync::CancellationToken;

pub use access::Rights;
pub use cli::NoArgs;
pub use embed::{EmbedOptions, EmbeddedOperator, Readiness};
pub use error::RunError;
pub(crate) use installation::SERVICE_PORT;
pub use installation::{Installation, InstallationError, SetupContext, Switch};

use crate::certificates::{RotationTiming, TimeOfDay};
use crate::controller::{Controller, Kind, Next, Pass};
use crate::metrics::{Metrics, OwnMetrics};
use crate::scopes::{Leadership, Scope};
use crate::webhooks::{RegistrationError, Webhooks};

/// What an operator is made of: its kinds, its rights, its webhooks and controllers.
#[must_use = "an operator does nothing until main() is called"]
pub struct Operator<A: clap::Args = NoArgs> {
    name: &'static str,
    version: Option<&'static str>,
    crds: Vec<CustomResourceDefinition>,
    access: Access,
    scope_leases: Vec<&'static str>,
    setup: Setup<A>,
}

type Setup<A> = Box<dyn Fn(&A, &SetupContext) -> anyhow::Result<Parts>>;
type Task = Arc<dyn Fn(Runtime) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

/// What runs in the one replica that leads: what it may do, and what it does.
struct Leading {
    access: Access,
    run: Task,
}

/// What a controller is given.
#[derive(Clone)]
pub struct Runtime {
    /// A client with the rights of the controller's own ServiceAccount; with the operator's, for what runs [on every
    /// replica](Parts::on_every_replica).
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
    /// What the operator registered.
    registered: Webhooks,
    /// What the installation says of all webhooks.
    overrides: Overrides,
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
            registered: Webhooks::default(),
            overrides: Overrides::default(),
        }
    }

    /// The validators that [`Controller`]s ask while webhooks are off. An operator's
    /// controllers are given those that it registered.
    #[must_use]
    pub fn validated_by(mut self, webhooks: &Webhooks) -> Self {
        self.registered = webhooks.clone();
        self
    }

    /// The validators that controllers have to ask.
    pub(crate) fn offline(&self) -> Option<Webhooks> {
        (!self.webhooks.is_on()).then(|| self.registered.clone().overridden(&self.overrides))
    }
}

/// What the arguments decide: the webhooks that are served and the controllers that run.
#[derive(Default)]
#[must_use = "parts do nothing until the operator runs them"]
pub struct Parts {
    webhooks: Webhooks,
    controllers: BTreeMap<String, Leading>,
    everywhere: BTreeMap<String, Task>,
    rotation_timing: RotationTiming,
    time_of_day: TimeOfDay,
    metrics: OwnMetrics,
    /// The first thing that does not fit: two controllers of one name, or two tasks, or a metric.
    unfit: Option<RegistrationError>,
}

impl Parts {
    /// Webhooks, and no controller yet.
    pub fn new(webhooks: Webhooks) -> Self {
        Self { webhooks, ..Self::default() }
    }

    /// Adds a controller. It runs in the one replica that leads. Two of one name are an error at the start.
    ///
    /// It acts under a ServiceAccount of its own, `<release>-<name>`, so its name has lower-case letters, digits and `-`, and
    /// both names together have 63 characters at most; with `--use-service-account-credentials=false` it acts under the
    /// operator's. What that account may do [follows](Controller::access) from what the controller is for, owns and watches:
    /// `generate` writes it. [`Controller::rbac`] adds what its reconcile does beside that.
    pub fn controller<K, F, R, E>(self, controller: Controller<K>, reconcile: F) -> Self
    where
        K: Kind,
        F: Fn(Pass<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Next, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let (name, access) = (controller.name().to_owned(), controller.access());
        let controller = Arc::new((controller, reconcile));
        self.while_leading(&name, access, move |runtime| {
            let controller = controller.clone();
            async move { controller.0.term(runtime, |pass| (controller.1)(pass)).await }
        })
    }

    /// Adds what runs in the one replica that leads, where that is no [`Controller`] alone: until [`Runtime::stop`] is
    /// cancelled, and again when this replica leads again. When it returns before it is asked to, or fails, the process
    /// ends with its error.
    ///
    /// `access` is what it may do, under a ServiceAccount of its own as for [`controller`](Self::controller). It begins when
    /// there is a token of that account, which is asked for, and renewed, in the background. A list of
    /// [`Grant`](crate::manifest::Grant)s is about what it watches: every namespace, or the one
    /// that an installation is restricted to. [`Access::in_own_namespace`] adds grants in the operator's own namespace,
    /// in whose names `{release}` stands for [`Runtime::release`].
    pub fn while_leading<F, R>(mut self, name: &str, access: impl Into<Access>, run: F) -> Self
    where
        F: Fn(Runtime) -> R + Send + Sync + 'static,
        R: Future<Output: Outcome> + Send + 'static,
    {
        let webhooks = self.webhooks.clone();
        let run = boxed(move |runtime: Runtime| run(runtime.validated_by(&webhooks)));
        let controller = Leading { access: access.into(), run };
        if self.controllers.insert(name.to_owned(), controller).is_some() {
            self.unfit.get_or_insert_with(|| RegistrationError::ControllerName(name.to_owned()));
        }
        self
    }

    /// Adds what every replica runs as long as its process, whether it leads or not. For what webhooks read of other
    /// objects there is [`Cache`](crate::cache::Cache), which needs no task. Here,
    /// [`Runtime::stop`] is cancelled when the last call of a webhook is answered. It does not write:
    /// [`Runtime::leadership`] never holds there. What it reads is granted by [`Operator::rbac`].
    pub fn on_every_replica<F, R>(mut self, name: &str, task: F) -> Self
    where
        F: Fn(Runtime) -> R + Send + Sync + 'static,
        R: Future<Output: Outcome> + Send + 'static,
    {
        if self.everywhere.insert(name.to_owned(), boxed(task)).is_some() {
            self.unfit.get_or_insert_with(|| RegistrationError::ControllerName(name.to_owned()));
        }
        self
    }

    /// How long the certificates are valid that the operator makes by itself, when they are replaced, and how long a
    /// rotation takes, in `run` and `certs` alike. What rotations would not come to rest by is
    /// [refused](RotationTiming::check) when certificates are made.
    pub fn rotation_timing(mut self, timing: RotationTiming) -> Self {
        self.rotation_timing = timing;
        self
    }

    /// What time it is where certificates are judged and made, instead of the machine's: for tests of an operator whose
    /// clock is wrong, or whose certificates are about to end.
    pub fn time_of_day(mut self, time_of_day: TimeOfDay) -> Self {
        self.time_of_day = time_of_day;
        self
    }

    /// Serves a metric of your own at `/metrics`: a counter gets `_total` behind its name. Keep a clone of it where
    /// handlers or reconciles count. A name that is taken, begins with `portcullis_`, or is none for Prometheus is an
    /// error at the start.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portcullis::k8s_openapi::api::core::v1::ConfigMap;
    /// use portcullis::operator::Parts;
    /// use portcullis::prometheus_client::metrics::counter::Counter;
    /// use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
    ///
    /// let large = Counter::<u64>::default();
    /// let counted = large.clone();
    /// let judge = move |new: Arc<ConfigMap>, _: Context| {
    ///     if new.data.as_ref().is_some_and(|data| data.len() > 100) {
    ///         counted.inc();
    ///     }
    ///     async { Verdict::allow() }
    /// };
    /// let webhooks = Webhooks::new().validate(Validate::<ConfigMap>::named("large").on_create(judge));
    /// let parts = Parts::new(webhooks).metric("shop_large_maps", "ConfigMaps with more than 100 entries", large);
    /// ```
    pub fn metric(mut self, name: &str, help: &str, metric: impl Metric) -> Self {
        if let Err(error) = self.metrics.register(name, help, metric) {
            self.unfit.get_or_insert(RegistrationError::Metric(error));
        }
        self
    }

    /// Of two of one name, one would never run.
    fn checked(&self) -> Result<(), RegistrationError> {
        self.unfit.clone().map_or(Ok(()), Err)
    }
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

/// What a part of an operator ends with: nothing, as [`Controller::run`], which
/// tries again what fails; or an [`anyhow::Result`], whose error ends the process.
pub trait Outcome {
    /// The error that ends the process, if there is one.
    ///
    /// # Errors
    /// That one.
    fn result(self) -> anyhow::Result<()>;
}

impl Outcome for () {
    fn result(self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Outcome for anyhow::Result<()> {
    fn result(self) -> anyhow::Result<()> {
        self
    }
}

impl<A: clap::Args> Operator<A> {
    /// An operator under this name: it names the roles, the configurations (`<name>-validating`), the Service and the
    /// Secrets.
    pub fn named(name: &'static str) -> Self {
        let setup: Setup<A> = Box::new(|_, _| Ok(Parts::default()));
        Self { name, version: None, crds: Vec::new(), access: Access::default(), scope_leases: Vec::new(), setup }
    }

    /// What `--version` says; most binaries give `env!("CARGO_PKG_VERSION")`.
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = Some(version);
        self
    }

    /// The kinds that it brings, each with all its versions ([`kube::core::crd::merge_crds`]). Those with a conversion
    /// among the webhooks are generated with it.
    pub fn crds(mut self, crds: Vec<CustomResourceDefinition>) -> Self {
        self.crds = crds;
        self
    }

    /// What handlers of webhooks and tasks [on every replica](Parts::on_every_replica) may do, under the operator's own
    /// ServiceAccount. What a controller may do follows from the controller ([`Parts::controller`]); what
    /// certificates and leases need is added.
    pub fn rbac(mut self, access: impl Into<Access>) -> Self {
        self.access = access.into();
        self
    }

    /// Other names of Leases by which operators say that a namespace is theirs, beside `<name>-namespace-scope`: those
    /// of an operator that this one takes the place of, or lives next to.
    ///
    /// They count as its own does, where an administrator has handed the namespace over: for an operator of another make,
    /// by the policy that `generate rbac --restrict-to-namespace` writes.
    pub fn scope_leases(mut self, names: &[&'static str]) -> Self {
        self.scope_leases = names.to_vec();
        self
    }

    /// Makes webhooks and controllers from the arguments. State that both need is made here and captured by both.
    pub fn setup(self, setup: impl Fn(&A) -> anyhow::Result<Parts> + 'static) -> Self {
        self.setup_within(move |args, _| setup(args))
    }

    /// As [`setup`](Self::setup), for webhooks or controllers that do something else in an installation that is restricted
    /// to a namespace, or whose webhooks are off. It says how they behave, and not which there are: `generate` makes one
    /// chart for all installations.
    pub fn setup_within(mut self, setup: impl Fn(&A, &SetupContext) -> anyhow::Result<Parts> + 'static) -> Self {
        self.setup = Box::new(setup);
        self
    }

    /// Reads the command line and does what it says. Call it as the binary's `main`, before anything that uses TLS: it
    /// installs the process's crypto provider, which is the binary's business and not a library's.
    pub fn main(self) -> ExitCode {
        self.main_from(std::env::args_os())
    }

    /// As [`main`](Self::main), with this command line: for a binary that takes another one, and translates it. The first
    /// word is the program's name.
    pub fn main_from(self, words: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
        cli::main(self, words.into_iter().map(Into::into).collect())
    }

    /// The command line, from which completions for shells and manual pages are made.
    pub fn command(&self) -> clap::Command {
        cli::command(self)
    }

    /// The parts that these arguments make.
    fn parts(&self, args: &A, context: &SetupContext) -> anyhow::Result<Parts> {
        let parts = (self.setup)(args, context)?;
        parts.checked()?;
        Ok(parts)
    }

    /// The installation that no flag says anything about, in this namespace.
    ///
    /// # Errors
    /// When the operator's name cannot name a Service or a webhook configuration (it ends in `-validating` or
    /// `-mutating`), and when `namespace` is no name of a namespace.
    pub fn installation(&self, namespace: &str) -> Result<Installation, InstallationError> {
        installation::InstallationFlags::default().resolve(self.name, Some(namespace))
    }
}

impl<A: clap::Args> std::fmt::Debug for Operator<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("name", &self.name).field("crds", &self.crds.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let controllers: Vec<_> = self.controllers.keys().collect();
        let everywhere: Vec<_> = self.everywhere.keys().collect();
        f.debug_struct("Parts")
            .field("webhooks", &self.webhooks)
            .field("controllers", &controllers)
            .field("everywhere", &everywhere)
            .field("metrics", &self.metrics)
            .field("rotation_timing", &self.rotation_timing)
            .field("time_of_day", &self.time_of_day)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_ends_with_nothing_or_with_a_result_whose_error_needs_no_type() {
        let parts = Parts::default()
            .while_leading("silent", [], |runtime| async move { runtime.stop.cancelled().await })
            .while_leading("failing", [], |_| async move {
                "no number".parse::<u8>()?;
                Ok(())
            });
        assert_eq!(parts.controllers.len(), 2);
    }

    #[test]
    fn a_metric_that_would_break_the_page_or_be_taken_for_one_of_ours_is_an_error_at_the_start() {
        use prometheus_client::metrics::counter::Counter;

        let table = [
            (vec!["shop_refused", "shop_served"], None),
            (vec!["shop_refused", "shop_refused"], Some("two metrics are named shop_refused: ")),
            (vec!["portcullis_refused"], Some("metric portcullis_refused begins with portcullis_")),
            (vec!["shop-refused"], Some("\"shop-refused\" cannot name a metric")),
            (vec!["1st"], Some("\"1st\" cannot name a metric")),
        ];
        for (names, expected) in table {
            let counted = Counter::<u64>::default();
            counted.inc();
            let parts = names.iter().fold(Parts::default(), |parts, name| parts.metric(name, "Help", counted.clone()));
            let said = parts.checked().err().map(|error| error.to_string());
            assert_eq!(said.is_some(), expected.is_some(), "{names:?}");
            if let (Some(said), Some(expected)) = (said, expected) {
                assert!(said.starts_with(expected), "{said}");
                continue;
            }
            let metrics = Metrics::new();
            metrics.adopt(parts.metrics).unwrap();
            assert!(metrics.register(names[1], "Help", Counter::<u64>::default()).is_err(), "it is taken");
            let page = metrics.encode();
            assert!(page.contains("\nshop_refused_total 1\n") && page.ends_with("# EOF\n"), "{page}");
            assert_eq!(page.matches("# EOF").count(), 1);
        }
    }

    #[test]
    fn setup_is_told_the_restriction_and_the_webhooks_of_the_command_line_that_main_is_given() {
        use std::cell::RefCell;
        use std::rc::Rc;

        let directory = tempfile::tempdir().unwrap();
        let out = format!("--out={}", directory.path().display());
        let table = [
            (vec!["--restrict-to-namespace=team-a", "--namespace=op-system"], Some("team-a"), Switch::On),
            (vec!["--restrict-to-namespace=", "--webhooks=off"], None, Switch::Off),
            (vec![], None, Switch::On),
        ];
        for (flags, restricted_to, webhooks) in table {
            let told = Rc::new(RefCell::new(Vec::new()));
            let tell = told.clone();
            let operator = Operator::<NoArgs>::named("op").setup_within(move |_, context| {
                tell.borrow_mut().push(context.clone());
                Ok(Parts::default())
            });
            let words = ["op", "generate", "rbac", &out].into_iter().chain(flags);
            operator.main_from(words);
            assert_eq!(*told.borrow(), [SetupContext { restricted_to: restricted_to.map(str::to_owned), webhooks }]);
        }
    }

    #[test]
    fn two_controllers_of_one_name_are_an_error_for_one_would_never_run() {
        async fn idle(_: Runtime) {}
        let expected = Err("two controllers are named orders: give one of them another name".to_owned());
        let table: [(fn() -> Parts, _); 3] = [
            (|| Parts::default().while_leading("orders", [], idle).while_leading("orders", [], idle), expected.clone()),
            (|| Parts::default().on_every_replica("orders", idle).on_every_replica("orders", idle), expected),
            (|| Parts::default().on_every_replica("orders", idle).while_leading("orders", [], idle), Ok(())),
        ];
        for (parts, expected) in table {
            let operator = Operator::<NoArgs>::named("op").setup(move |_| Ok(parts()));
            let made = operator.parts(&NoArgs {}, &SetupContext::default());
            assert_eq!(made.map(drop).map_err(|error| error.to_string()), expected);
        }
    }
}
