//! The registration of a kind, with its controller, webhook and rights: one line in [`crate::kinds`].

use std::{borrow::Cow, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, Pod, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    rbac::v1::{PolicyRule, Role, RoleBinding},
};
use kube::Client;
use mcp_api::names::GROUP;
use mcp_plan::{
    config::Sessions,
    settings::Settings,
    workload::{ChildKind, ChildRef},
};
use portcullis::{
    controller::{Controller, Observed, Queue, SharedController, Store, Watches, watcher_config},
    manifest::{Access, policy_rule},
    operator::Runtime,
    webhooks::Webhooks,
};

use super::{
    PodTrace, Stores,
    backend_pods::BackendPod,
    config::ConfigController,
    contents::Contents,
    live::Outsider,
    stores::{ConfigStore, KindStore, OPEN_SESSIONS, Workloads},
    traces::marks,
    wake::Wake,
    workload::WorkloadController,
};
use crate::{
    admission::{self, Judging},
    config::{ConfigKind, refused_secrets},
    rights,
    subject::{self, Subject},
    workload::{Workload, checks, refused_pods},
};

/// The kinds of this operator.
#[derive(Default)]
pub struct Registry {
    pub(super) kinds: Vec<Box<dyn Registered>>,
    pub(super) stores: Vec<(Cow<'static, str>, Arc<dyn KindStore>)>,
    pub(super) outsiders: Vec<Outsider>,
}

/// A registered kind.
pub(super) trait Registered: Send + Sync {
    /// Adds its admission webhook.
    fn webhook(&self, webhooks: Webhooks, judging: &Judging) -> Webhooks;
    /// Makes its controller, which does nothing yet.
    fn controller(&self, building: &Building) -> Box<dyn KindController>;
    /// Its name.
    fn kind(&self) -> Cow<'static, str>;
    /// Its plural.
    fn plural(&self) -> &'static str;
    /// The rights of its controller beside watching.
    fn access(&self) -> Access;
}

/// The parts that controllers are built from.
pub(super) struct Building {
    pub(super) stores: Arc<Stores>,
    pub(super) settings: Settings,
    pub(super) wake: Arc<Wake>,
    pub(super) client: Client,
}

/// The controller of one kind.
pub(super) trait KindController: Send + Sync {
    /// The kind.
    fn kind(&self) -> String;
    /// Where its objects are asked for.
    fn queue(&self) -> Arc<Queue>;
    /// Starts its watches.
    fn follow(&self, watches: &Watches);
    /// Reconciles until it has to end.
    fn work<'a>(&'a self, watches: &'a Watches, runtime: Runtime) -> BoxFuture<'a, ()>;
}

impl Registry {
    /// Adds a kind of workloads.
    #[must_use]
    pub fn workload<W: Workload>(mut self) -> Self {
        let store: Arc<Store<Observed<W>>> = Arc::default();
        self.stores.push((W::kind(&()), Arc::new(Workloads(store.clone()))));
        self.kinds.push(Box::new(WorkloadKind { store }));
        self
    }

    /// Adds a kind of configurations.
    #[must_use]
    pub fn config<K: ConfigKind>(mut self) -> Self {
        let store: Arc<Store<Observed<K>>> = Arc::default();
        self.stores.push((K::kind(&()), Arc::new(ConfigStore(store.clone()))));
        self.kinds.push(Box::new(Config { store }));
        self
    }

    /// Adds a kind that has no controller here and whose objects keep what they refer to.
    #[must_use]
    pub fn outsider(mut self, outsider: Outsider) -> Self {
        self.outsiders.push(outsider);
        self
    }

    /// Lists the rights to read the kinds that the stores hold, and those asked for before an object is deleted.
    pub fn reads(&self) -> Vec<PolicyRule> {
        let held = self.kinds.iter().map(|kind| policy_rule(GROUP, &[kind.plural()], &["list", "watch"]));
        let asked = self.outsiders.iter().map(|kind| policy_rule(GROUP, &[kind.plural], &["list"]));
        held.chain(asked).collect()
    }
}

/// A kind of workloads.
struct WorkloadKind<W> {
    store: Arc<Store<Observed<W>>>,
}

impl<W: Workload> Registered for WorkloadKind<W> {
    fn webhook(&self, webhooks: Webhooks, judging: &Judging) -> Webhooks {
        webhooks.validate(admission::webhook::<W>(judging, made::<W>, refused_pods::<W>, checks::advice::<W>))
    }

    fn controller(&self, building: &Building) -> Box<dyn KindController> {
        let Building { stores, settings, wake, .. } = building;
        let (pods, backend_pods): (Arc<Store<PodTrace>>, Arc<Store<BackendPod>>) = Default::default();
        let work = WorkloadController::new(stores.clone(), pods.clone(), backend_pods.clone(), settings.clone());
        let work = Arc::new(work);
        let (cleaned, refused, on) = (work.clone(), work.clone(), wake.clone());
        let of = |kind| stores.children(kind).clone();
        let mut controller = named::<W>().index_by(tokens_of_workload::<W>).on_invalid(move |cx, problem| {
            let refused = refused.clone();
            async move { refused.reconcile(cx, Some(&problem)).await }
        });
        if let Some(finalizer) = W::FINALIZER {
            controller = controller.finalizer(finalizer, move |deletion| {
                let cleaned = cleaned.clone();
                async move { cleaned.clean_up(deletion).await }
            });
        }
        let controller = SharedController::new(controller)
            .with_store(self.store.clone())
            .owns_with_store::<ConfigMap, _>(of(ChildKind::ConfigMap))
            .owns_with_store::<Service, _>(of(ChildKind::Service))
            .owns_with_store::<ServiceAccount, _>(of(ChildKind::ServiceAccount))
            .owns_with_store::<Role, _>(of(ChildKind::Role))
            .owns_with_store::<RoleBinding, _>(of(ChildKind::RoleBinding))
            .owns_with_store::<NetworkPolicy, _>(of(ChildKind::NetworkPolicy))
            .owns_with_store::<Deployment, _>(of(ChildKind::Deployment))
            .owns_with_store::<StatefulSet, _>(of(ChildKind::StatefulSet))
            .on_change(move |change| on.referrer(change));
        let (stores, wake) = (stores.clone(), wake.clone());
        Box::new(OfWorkloads { controller, work, stores, pods, backend_pods, wake })
    }

    fn kind(&self) -> Cow<'static, str> {
        W::kind(&())
    }

    fn plural(&self) -> &'static str {
        W::RESOURCES[0]
    }

    fn access(&self) -> Access {
        rights::of_workloads::<W>()
    }
}

/// The controller of one kind of workloads.
struct OfWorkloads<W> {
    controller: SharedController<W>,
    work: Arc<WorkloadController>,
    stores: Arc<Stores>,
    pods: Arc<Store<PodTrace>>,
    backend_pods: Arc<Store<BackendPod>>,
    wake: Arc<Wake>,
}

impl<W: Workload> KindController for OfWorkloads<W> {
    fn kind(&self) -> String {
        W::kind(&()).into_owned()
    }

    fn queue(&self) -> Arc<Queue> {
        self.controller.queue()
    }

    fn follow(&self, watches: &Watches) {
        self.controller.follow(watches);
        let (on, kind) = (self.wake.clone(), self.kind());
        let pods = watcher_config().labels(&PodTrace::selector(W::APP));
        watches.follow::<Pod, _>(pods, self.pods.clone(), PodTrace::read, move |change| on.pod(&kind, change));
        if W::CHILDREN.contains(&ChildKind::StatefulSet) {
            let (on, kind) = (self.wake.clone(), self.kind());
            let pods = watcher_config().labels(&BackendPod::selector());
            let on_change = move |change: &_| on.backend_pod(&kind, change);
            watches.follow::<Pod, _>(pods, self.backend_pods.clone(), BackendPod::read, on_change);
        }
    }

    fn work<'a>(&'a self, watches: &'a Watches, runtime: Runtime) -> BoxFuture<'a, ()> {
        async move {
            let Some(contents) = Contents::of(&runtime, self.stores.clone()).await else { return };
            self.work.read_by(contents);
            self.controller.work(watches, runtime, |cx| self.work.reconcile(cx, None)).await;
        }
        .boxed()
    }
}

/// A kind of configurations.
struct Config<K> {
    store: Arc<Store<Observed<K>>>,
}

impl<K: ConfigKind> Registered for Config<K> {
    fn webhook(&self, webhooks: Webhooks, judging: &Judging) -> Webhooks {
        webhooks.validate(admission::webhook::<K>(judging, |_| Vec::new(), refused_secrets::<K>, |_, _| Vec::new()))
    }

    fn controller(&self, building: &Building) -> Box<dyn KindController> {
        let Building { stores, settings, wake, client } = building;
        let work = Arc::new(ConfigController::new(stores.clone(), settings.clone(), client.clone()));
        let (released, refused, on) = (work.clone(), work.clone(), wake.clone());
        let mut controller = named::<K>().index_by(subject::tokens::<K>).on_invalid(move |cx, _| {
            let refused = refused.clone();
            async move { refused.refuse(cx).await }
        });
        if let Some(finalizer) = K::FINALIZER {
            controller = controller.finalizer(finalizer, move |deletion| {
                let released = released.clone();
                async move { released.clean_up(deletion).await }
            });
        }
        let controller = SharedController::new(controller).with_store(self.store.clone()).on_change(move |change| {
            on.referrer(change);
            on.config(change);
        });
        Box::new(OfConfigs { controller, work })
    }

    fn kind(&self) -> Cow<'static, str> {
        K::kind(&())
    }

    fn plural(&self) -> &'static str {
        K::RESOURCES[0]
    }

    fn access(&self) -> Access {
        rights::of_configs::<K>()
    }
}

/// The controller of one kind of configurations.
struct OfConfigs<K> {
    controller: SharedController<K>,
    work: Arc<ConfigController>,
}

impl<K: ConfigKind> KindController for OfConfigs<K> {
    fn kind(&self) -> String {
        K::kind(&()).into_owned()
    }

    fn queue(&self) -> Arc<Queue> {
        self.controller.queue()
    }

    fn follow(&self, watches: &Watches) {
        self.controller.follow(watches);
    }

    fn work<'a>(&'a self, watches: &'a Watches, runtime: Runtime) -> BoxFuture<'a, ()> {
        self.controller.work(watches, runtime, |cx| self.work.reconcile(cx)).boxed()
    }
}

/// The keys by which workloads are found: all that they refer to, and whether they leave it to the operator where their sessions are.
fn tokens_of_workload<W: Workload>(workload: &W) -> Vec<String> {
    let open = (workload.uses().sessions == Sessions::Open).then(|| OPEN_SESSIONS.to_owned());
    subject::tokens(workload).into_iter().chain(open).collect()
}

/// Everything that may be made for a workload.
fn made<W: Workload>(workload: &W) -> Vec<ChildRef> {
    workload.all_children().into_iter().filter(|child| !W::OBSOLETE.contains(&child.kind)).collect()
}

/// A controller named after its kind.
fn named<K: Subject>() -> Controller<K> {
    let kind = K::kind(&());
    Controller::new(&format!("{}-controller", kind.to_lowercase())).field_manager(marks(&kind))
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("stores", &self.stores).finish_non_exhaustive()
    }
}
