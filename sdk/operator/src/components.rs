//! The webhooks and controllers of an operator, and its other tasks.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use futures::future::BoxFuture;
use portcullis_certificates::{RotationTiming, TimeOfDay};
use portcullis_controller::{Action, BoxError, Controller, Kind, Reconcile, Runtime};
use portcullis_manifest::Access;
use portcullis_metrics::CustomMetrics;
use portcullis_webhook::Webhooks;
use prometheus_client::registry::Metric;

use super::error::ComponentsError;

pub(super) type Task = Arc<dyn Fn(Runtime) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A task of the leading replica, and the access that it needs.
#[derive(Clone)]
pub(super) struct LeaderTask {
    pub(super) access: Access,
    pub(super) run: Task,
}

/// The webhooks that an operator serves and the controllers that it runs, made from its arguments
/// ([`Operator::setup`](super::Operator::setup)).
#[derive(Default)]
#[must_use = "components do nothing until the operator runs them"]
pub struct Components {
    pub(super) webhooks: Webhooks,
    pub(super) controllers: BTreeMap<String, LeaderTask>,
    pub(super) replica_tasks: BTreeMap<String, Task>,
    pub(super) rotation_timing: RotationTiming,
    pub(super) time_of_day: TimeOfDay,
    pub(super) metrics: CustomMetrics,
    /// The first error of the registration: two controllers or two tasks of one name, or a metric.
    error: Option<ComponentsError>,
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
        let (name, task) = controller_task(controller, reconcile);
        self.add(name, task)
    }

    pub(super) fn add(mut self, name: String, task: LeaderTask) -> Self {
        match self.controllers.entry(name) {
            Entry::Vacant(vacant) => {
                vacant.insert(task);
            }
            Entry::Occupied(taken) => {
                self.error.get_or_insert_with(|| ComponentsError::DuplicateController(taken.key().clone()));
            }
        }
        self
    }

    /// Adds a task that runs in the leading replica, where a [`Controller`] does not suffice: until [`Runtime::stop`]
    /// is cancelled, and again when this replica leads again. When it returns early or fails, the process ends with its
    /// error.
    ///
    /// `access` is added to the rights of the operator's ServiceAccount. A list of
    /// [`policy_rule`](portcullis_manifest::policy_rule)s applies to what it watches: every namespace, or the one that an
    /// installation is restricted to. [`Access::with_own_namespace`] adds rules in the operator's own namespace, in
    /// whose names `{release}` stands for [`Runtime::release`].
    pub fn leader_task<F, R>(self, name: &str, access: impl Into<Access>, run: F) -> Self
    where
        F: Fn(Runtime) -> R + Send + Sync + 'static,
        R: Future<Output: TaskResult> + Send + 'static,
    {
        self.add(name.to_owned(), LeaderTask { access: access.into(), run: boxed(run) })
    }

    /// Adds a task that every replica runs as long as its process, whether it leads or not. (Objects that webhooks read
    /// need no task: see [`Cache`](portcullis_controller::cache::Cache).) [`Runtime::stop`] is cancelled when the last
    /// webhook call is answered; the process ends when the task returns before that. The task must not write: its
    /// [`Runtime::leadership`] never holds. [`Operator::rbac`](super::Operator::rbac) grants what it reads.
    pub fn replica_task<F, R>(mut self, name: &str, task: F) -> Self
    where
        F: Fn(Runtime) -> R + Send + Sync + 'static,
        R: Future<Output: TaskResult> + Send + 'static,
    {
        if self.replica_tasks.insert(name.to_owned(), boxed(task)).is_some() {
            self.error.get_or_insert_with(|| ComponentsError::DuplicateController(name.to_owned()));
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
    /// use k8s_openapi::api::core::v1::ConfigMap;
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
    /// let webhooks = Webhooks::new().validate(Validate::<ConfigMap>::new("large").on_create_or_update(count));
    /// let help = "ConfigMaps with more than 100 entries";
    /// let components = Components::new(webhooks).metric("shop_large_maps", help, large);
    /// ```
    pub fn metric(mut self, name: &str, help: &str, metric: impl Metric) -> Self {
        if let Err(invalid) = self.metrics.register(name, help, metric) {
            self.error.get_or_insert(ComponentsError::InvalidMetric(invalid));
        }
        self
    }

    /// Returns the first error of the registration.
    pub(super) fn checked(&self) -> Result<(), ComponentsError> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

/// A controller as a task of the leading replica, with its name.
pub(super) fn controller_task<K, F, R, E>(controller: Controller<K>, reconcile: F) -> (String, LeaderTask)
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
        async move { controller.0.run(runtime, |request| (controller.1)(request)).await }
    });
    (name, LeaderTask { access, run })
}

fn boxed<F, R>(task: F) -> Task
where
    F: Fn(Runtime) -> R + Send + Sync + 'static,
    R: Future<Output: TaskResult> + Send + 'static,
{
    Arc::new(move |runtime| {
        let task = task(runtime);
        Box::pin(async move { task.await.into_result() })
    })
}

/// The result of an operator's task: `()`, as [`Controller::run`] returns, which retries what fails; or a `Result`,
/// whose error, of any type, ends the process.
pub trait TaskResult {
    /// Converts it to a result, whose error ends the process.
    ///
    /// # Errors
    /// With the error of the task, if it returned one.
    fn into_result(self) -> Result<(), BoxError>;
}

impl TaskResult for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> TaskResult for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

impl std::fmt::Debug for Components {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let controllers: Vec<_> = self.controllers.keys().collect();
        let replica_tasks: Vec<_> = self.replica_tasks.keys().collect();
        f.debug_struct("Components")
            .field("webhooks", &self.webhooks)
            .field("controllers", &controllers)
            .field("replica_tasks", &replica_tasks)
            .field("metrics", &self.metrics)
            .field("rotation_timing", &self.rotation_timing)
            .field("time_of_day", &self.time_of_day)
            .finish_non_exhaustive()
    }
}
