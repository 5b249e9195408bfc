//! The controller of workloads, whatever the kind.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::PropagationPolicy};
use mcp_plan::{
    guards::belongs_to,
    settings::Settings,
    workload::{Child, ChildKind, ChildRef, Opened, Phase, status::serving},
};
use portcullis::controller::{
    Action, Applied, Cleanup, ControllerError, Deletion, Key, Reconcile, Store, Stored as _,
    apply::{ApplyError, refusal},
};
use tokio::time::Instant;

use super::{
    PodTrace, Stores, Trace,
    backend_pods::{BackendPod, replace_outdated},
    contents::Contents,
    failure::{self, ApplyFailure},
    obstacles::{make_way, unowned},
    reach,
    replace::replace_detached,
    traces::marks,
};
use crate::workload::{Inputs, PROXY_REMOVED, Plan, Workload, deleted, plan_workload};

/// A proxy that was just made has no pods yet. They wake its workload; until then, for at most this long, nothing is
/// said: one status instead of two.
const SETTLE: Duration = Duration::from_secs(3);

/// The time for which the end of such a wait is kept: longer than the following reconcile may take to start.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// The pause before pods behind a proxy are looked at again that wait for the StatefulSet's controller.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// For how long the pods behind a proxy may end after their workload was deleted, before it goes without them.
const ENDING: Duration = Duration::from_mins(2);

/// Keeps the children and the status of workloads.
pub(super) struct WorkloadController {
    stores: Arc<Stores>,
    pods: Arc<Store<PodTrace>>,
    backend_pods: Arc<Store<BackendPod>>,
    settings: Settings,
    /// Set while this replica reconciles.
    contents: Mutex<Option<Contents>>,
    /// Workloads whose status waits for their first pods, and until when.
    settling: Mutex<HashMap<Key, Instant>>,
}

/// The result of writing the children.
#[derive(Default)]
struct Done {
    writes: usize,
    /// The first child that could not be written, and why.
    failed: Option<ControllerError>,
    /// Another reason why a child is not written.
    failure: Option<ApplyFailure>,
}

// === impl WorkloadController ===

impl WorkloadController {
    pub(super) fn new(
        stores: Arc<Stores>,
        pods: Arc<Store<PodTrace>>,
        backend_pods: Arc<Store<BackendPod>>,
        settings: Settings,
    ) -> Self {
        Self { stores, pods, backend_pods, settings, contents: Mutex::default(), settling: Mutex::default() }
    }

    /// Reads Secrets and ConfigMaps by these from now on.
    pub(super) fn read_by(&self, contents: Contents) {
        *self.contents.lock().unwrap_or_else(PoisonError::into_inner) = Some(contents);
    }

    /// Makes a workload what its plan says. `denied` is what the validators find wrong with it, where webhooks are off.
    pub(super) async fn reconcile<W: Workload>(
        &self,
        cx: Reconcile<W>,
        denied: Option<&str>,
    ) -> Result<Action, ControllerError> {
        let contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Nothing is reconciled before they are set.
        let Some(contents) = contents else { return Ok(Action::requeue(SETTLE)) };
        let (key, workload) = (&cx.key, &*cx.object);
        let proxies = self.pods.find(&key.namespace, &key.name);
        replace_detached(&cx, &proxies.iter().map(|trace| &trace.pod).collect::<Vec<_>>()).await?;
        let unseen = self.stores.lag(&key.namespace, &workload.references()).await;
        let (mut plan, mut unreadable) = self.plan(&contents, workload, denied, unseen).await;
        let mut done = Done::default();
        remove(&cx, &plan.absent, &mut done).await;
        remove(&cx, &unowned(&self.stores, &cx, &plan), &mut done).await;
        if done.failed.is_none() {
            match make_way(&self.stores, &cx, &plan).await {
                Ok(obstacle) => done.failure = obstacle,
                Err(error) => done.failed = Some(error),
            }
        }
        if done.failed.is_none() && done.failure.is_none() {
            apply(&cx, &plan.children, &mut done).await?;
        }
        let failure = done.failure();
        if failure.is_none() && done.writes > 0 {
            // The status tells of children as they are now: our own writes wake nobody. That a proxy was taken away is no
            // news to this plan.
            let removed = plan.events.into_iter().find(|event| event.reason == PROXY_REMOVED);
            (plan, unreadable) = self.plan(&contents, workload, denied, unseen).await;
            plan.events.retain(|event| event.reason != PROXY_REMOVED);
            plan.events.extend(removed);
        }
        if unseen && let Some(rest) = self.settle(key, true) {
            // That it does not exist would be said in the moment before it is seen.
            return Ok(Action::requeue(rest));
        }
        if let Some(failure) = failure {
            // A child that is being deleted is gone in a moment, unless a finalizer holds it.
            if failure.phase() == Phase::Pending
                && let Some(rest) = self.settle(key, true)
            {
                return Ok(Action::requeue(rest));
            }
            failure::report(&mut plan, workload, &failure);
        } else if plan.report.phase == Phase::Pending
            && self.pods.find(&key.namespace, &key.name).is_empty()
            && let Some(rest) = self.settle(key, done.writes > 0)
        {
            return Ok(Action::requeue(rest));
        }
        self.settled(key);
        let mut again = plan.again;
        // Where the spec never changed, the template of pods that fail may have, with a Secret.
        let may_be_outdated = plan.report.phase == Phase::Failed || workload.meta().generation != Some(1);
        report(&cx, plan).await?;
        if done.failed.is_none() && may_be_outdated {
            let pods = self.backend_pods.find(&key.namespace, &key.name);
            if !replace_outdated(&cx, &pods).await? {
                again = Some(LOOK_AGAIN);
            }
        }
        done.failed.or(unreadable).map_or_else(|| Ok(again.map_or(Action::await_change(), Action::requeue)), Err)
    }

    /// Deletes the children of a workload that is being deleted. What that leaves is the garbage collector's.
    pub(super) async fn clean_up<W: Workload>(&self, deletion: Deletion<W>) -> Result<Cleanup, ControllerError> {
        self.settled(&deletion.key);
        if let Ok(cx) = deletion.reconcile {
            let pods = self.pods.find(&cx.key.namespace, &cx.key.name);
            let pods: Vec<&Pod> = pods.iter().map(|trace| &trace.pod).collect();
            let now = jiff::Timestamp::now();
            let backend = cx.object.backend();
            let runs = backend.is_some_and(|backend| self.own(&*cx.object, &backend).is_some());
            let since = cx.object.meta().deletion_timestamp.as_ref().map_or(now, |asked| asked.0);
            let rest = ENDING.saturating_sub(now.duration_since(since).unsigned_abs());
            let plan = deleted(&*cx.object, &pods, !runs || rest.is_zero(), now);
            remove(&cx, &plan.absent, &mut Done::default()).await;
            // Nothing of this may keep the object from going.
            if let Err(error) = report(&cx, plan).await {
                tracing::debug!(namespace = cx.key.namespace, name = cx.key.name, %error, "cannot report the deletion");
            }
            if runs && !rest.is_zero() {
                return Ok(Cleanup::Pending(Action::requeue(rest)));
            }
        }
        Ok(Cleanup::Done)
    }

    /// The plan, and why a Secret or ConfigMap that it looks at cannot be read.
    async fn plan<W: Workload>(
        &self,
        contents: &Contents,
        workload: &W,
        denied: Option<&str>,
        unseen: bool,
    ) -> (Plan, Option<ControllerError>) {
        let (namespace, name) = (workload.namespace().unwrap_or_default(), workload.name_any());
        let references = workload.all_references(&self.settings);
        let configs = self.stores.configs(&namespace, &references);
        let theirs: Vec<_> = configs.values().flat_map(|config| config.references()).collect();
        let (data, failed) = contents.data(&namespace, references.iter().chain(&theirs)).await;
        let unreadable = failed.as_ref().map(ToString::to_string);
        let children: BTreeSet<_> =
            workload.all_children().into_iter().filter(|child| self.own(workload, child).is_some()).collect();
        let opened = children.iter().filter_map(|child| Some((child.clone(), self.own(workload, child)?.opened)));
        let opened = opened.filter(|(_, opened)| *opened != Opened::default()).collect();
        let deployment = self.own(workload, &ChildRef::new(ChildKind::Deployment, &*name));
        let deployment = deployment.map(|trace| trace.deployment());
        let traces = self.pods.find(&namespace, &name);
        let pods: Vec<&Pod> = traces.iter().map(|trace| &trace.pod).collect();
        let containers = traces.iter().filter_map(|trace| Some((trace.name(), trace.container.as_ref()?))).collect();
        let backend_pods = self.backend_pods.find(&namespace, &name);
        let backend_pods: Vec<&Pod> = backend_pods.iter().map(|kept| &kept.pod).collect();
        let reach = match workload.checks_remote() {
            Some(port) => {
                let own: Vec<&Pod> = pods.iter().copied().filter(|pod| belongs_to(pod, &name)).collect();
                reach::ask(&serving(&own), port).await
            }
            None => None,
        };
        let plan = plan_workload(&Inputs {
            workload,
            configs: &configs,
            unseen,
            data: &data,
            unreadable: unreadable.as_deref(),
            denied,
            deployment: deployment.as_ref(),
            children: &children,
            opened: &opened,
            pods: &pods,
            containers: &containers,
            backend_pods: &backend_pods,
            reach: reach.as_ref(),
            settings: &self.settings,
            now: jiff::Timestamp::now(),
        });
        (plan, failed)
    }

    /// The child, where it exists. Another's object of that name says nothing about this workload.
    fn own<W: Workload>(&self, workload: &W, child: &ChildRef) -> Option<Arc<Trace>> {
        let found = self.stores.children(child.kind).get(&workload.namespace().unwrap_or_default(), &child.name);
        let (uid, manager) = (workload.uid().unwrap_or_default(), marks(&W::kind(&())).name);
        found.filter(|trace| refusal(&trace.live, &uid, &manager).is_none())
    }

    /// Returns the rest of the wait for the first pods of `key`, if there is one. Writing children begins a wait.
    fn settle(&self, key: &Key, written: bool) -> Option<Duration> {
        let mut settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let until = match settling.get(key) {
            Some(until) => *until,
            None if written => {
                // The deletion of a workload without a finalizer causes no reconcile.
                settling.retain(|_, until| *until + FORGOTTEN > now);
                *settling.entry(key.clone()).or_insert(now + SETTLE)
            }
            None => return None,
        };
        Some(until.saturating_duration_since(now)).filter(|rest| !rest.is_zero())
    }

    fn settled(&self, key: &Key) {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

async fn apply<W: Workload>(cx: &Reconcile<W>, children: &[Child], done: &mut Done) -> Result<(), ControllerError> {
    for Child { reference: ChildRef { kind, name }, object } in children {
        match cx.apply_dynamic(&kind.api_resource(), object.clone()).await {
            // A delayed child was written before, and is again when its turn comes.
            Ok(Applied::Unchanged | Applied::Delayed) => {}
            Ok(Applied::Written) => done.writes += 1,
            // Later children may rely on one that cannot be written: a proxy must not start with no RunConfig,
            // nor with one that is about to go and lacks the guard that the proxy is said to have.
            Ok(Applied::Terminating) => {
                done.failure = Some(ApplyFailure::being_deleted(*kind, name));
                return Ok(());
            }
            Err(ControllerError::NameTaken { refusal, .. }) => {
                done.failure = Some(ApplyFailure::NameTaken(format!("{} {name}: {refusal}", kind.as_str())));
                return Ok(());
            }
            // Its pods would go anyway; once it is gone, it is created again.
            Err(error) if keeps_its_strategy(&error) => {
                remove(cx, &[ChildRef::new(*kind, name)], done).await;
                done.failure = Some(ApplyFailure::being_deleted(*kind, name));
                return Ok(());
            }
            Err(error @ ControllerError::Child(_)) => {
                done.failed = Some(error);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a Deployment cannot change from `RollingUpdate` to `Recreate`: the API server has filled in how to roll, and no apply removes
/// what it does not own.
fn keeps_its_strategy(error: &ControllerError) -> bool {
    let ControllerError::Child(ApplyError::Refused { source, .. }) = error else { return false };
    let kube::Error::Api(status) = &**source else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.field == "spec.strategy.rollingUpdate")
}

/// Deletes those of `absent` that exist and are the workload's.
async fn remove<W: Workload>(cx: &Reconcile<W>, absent: &[ChildRef], done: &mut Done) {
    for ChildRef { kind, name } in absent {
        // These stay until their pods are gone: what follows must not serve beside them, nor what closes the way to them go
        // before them.
        let propagation = match kind {
            ChildKind::Deployment | ChildKind::StatefulSet => PropagationPolicy::Foreground,
            _ => PropagationPolicy::Background,
        };
        match cx.delete_dynamic(&kind.api_resource(), name, propagation).await {
            Ok(deleted) => done.writes += usize::from(deleted),
            Err(error) => _ = done.failed.get_or_insert(error),
        }
    }
}

async fn report<W: Workload>(cx: &Reconcile<W>, plan: Plan) -> Result<(), ControllerError> {
    if cx.apply_status(&W::status_of(plan.report)).await? {
        cx.publish_events(&plan.events).await;
    }
    Ok(())
}

// === impl Done ===

impl Done {
    /// Returns the warning for the workload's author, if there is one.
    fn failure(&mut self) -> Option<ApplyFailure> {
        self.failure.take().or_else(|| self.failed.as_ref().map(|error| ApplyFailure::Failed(error.to_string())))
    }
}
