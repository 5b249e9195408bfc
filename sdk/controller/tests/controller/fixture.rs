//! A namespace, a user with the rights that a controller needs, and the controller as a task.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, CustomResourceExt as _};
use portcullis::controller::{Action, Cleanup, Controller, Kind, Metrics, Namespaces, Reconcile};
use portcullis::operator::{Runtime, Switch};
use portcullis::webhooks::Webhooks;
use portcullis_testing::{AuditEvent, ControlPlane, Grant, Mark, User, wait_for_object, wait_until};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::boat::{Boat, BoatStatus, Fleet, boat, crd, webhooks};

/// Nothing in these tests takes longer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// Until what was written has reached the controller.
const DELIVERED: Duration = Duration::from_millis(250);
/// The prefix of the gauge of pending objects.
const PENDING: &str = "portcullis_reconciles_pending{";

static CRD: OnceCell<()> = OnceCell::const_new();

/// The rights of a controller of boats with finalizers and children.
fn rights() -> Vec<PolicyRule> {
    let boats = Controller::<Boat>::new("boats");
    rules(&boats.finalizer("kit.example/boats", |_| async { anyhow::Ok(Cleanup::Done) }).owns::<ConfigMap>())
}

/// The rights of this controller.
pub(crate) fn rules<K: Kind>(controller: &Controller<K>) -> Vec<PolicyRule> {
    let access = controller.access();
    [access.watched, access.cluster].concat()
}

pub(crate) struct Place {
    pub(crate) cluster: &'static ControlPlane,
    pub(crate) namespace: String,
    pub(crate) user: User,
}

/// A controller that runs.
pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    metrics: Metrics,
    task: JoinHandle<()>,
}

impl Place {
    pub(crate) async fn new(name: &str) -> Self {
        let cluster = ControlPlane::shared().await;
        CRD.get_or_init(|| async { cluster.install_crds(&[crd(), Fleet::crd()]).await }).await;
        let namespace = cluster.namespace(name).await;
        let user = cluster.user_with(name, &[Grant::ClusterRules(&rights())]).await;
        Self { cluster, namespace, user }
    }

    pub(crate) fn api<K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.cluster.admin(), &self.namespace)
    }

    pub(crate) async fn create(&self, name: &str, oars: u32) -> Boat {
        self.api::<Boat>().create(&PostParams::default(), &boat(name, oars)).await.unwrap()
    }

    pub(crate) async fn merge(&self, name: &str, patch: Value) {
        self.api::<Boat>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn until(&self, name: &str, what: &str, condition: impl Fn(&Boat) -> bool) -> Boat {
        wait_for_object(&self.api::<Boat>(), name, what, PATIENCE, condition).await
    }

    pub(crate) async fn gone(&self, name: &str) {
        let api = self.api::<Boat>();
        wait_until("the boat to go", PATIENCE, || async { api.get_opt(name).await.unwrap().is_none().then_some(()) })
            .await;
    }

    /// A controller in this namespace, under this test's field manager.
    pub(crate) fn controller(&self) -> Controller<Boat> {
        Controller::new("boats").namespaces(Namespaces::parse(&self.namespace))
    }

    /// Makes a runtime with webhooks on or off.
    pub(crate) fn runtime(&self, switch: Switch) -> Runtime {
        self.validated(switch, &webhooks())
    }

    /// The same, with other webhooks than the boats' own.
    pub(crate) fn validated(&self, switch: Switch, webhooks: &Webhooks) -> Runtime {
        let mut runtime = Runtime::new(self.user.client.clone(), "default", CancellationToken::new());
        runtime.webhooks = switch;
        runtime.with_validators(webhooks.clone())
    }

    /// The controller's writes since `mark`.
    pub(crate) async fn writes(&self, mark: Mark) -> Vec<AuditEvent> {
        self.cluster.audit().writes_by(&self.user.name, mark).await
    }

    /// Reasons of the events about a boat.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let events = self.api::<Event>().list(&ListParams::default()).await.unwrap();
        let about = |event: &Event| event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name));
        events.into_iter().filter(about).filter_map(|event| event.reason).collect()
    }
}

impl Running {
    pub(crate) fn start<K, F, R>(controller: Controller<K>, runtime: Runtime, reconcile: F) -> Self
    where
        K: Kind,
        F: Fn(Reconcile<K>) -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<Action>> + Send + 'static,
    {
        Self::spawn(runtime, async move |runtime| controller.run(runtime, reconcile).await)
    }

    pub(crate) fn spawn<R>(runtime: Runtime, run: impl FnOnce(Runtime) -> R) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let (stop, metrics) = (runtime.stop.clone(), runtime.metrics.clone());
        Self { stop, metrics, task: tokio::spawn(run(runtime)) }
    }

    /// Waits until the controller is idle: it has nothing to do now or within the next ten seconds, and writes nothing
    /// meanwhile. Returns the moment since when it has not.
    pub(crate) async fn idle(&self, place: &Place) -> Mark {
        wait_until("the controller to be idle", PATIENCE, || async {
            let mark = place.cluster.audit().mark();
            // The last write is on its way to the controller: by another client before the first look, by itself
            // between the two.
            for _ in 0..2 {
                tokio::time::sleep(DELIVERED).await;
                let metrics = self.metrics.encode();
                let pending = metrics.lines().find(|line| line.starts_with(PENDING))?;
                if !pending.ends_with(" 0") {
                    return None;
                }
            }
            place.writes(mark).await.is_empty().then_some(mark)
        })
        .await
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.ended().await;
    }

    pub(crate) async fn ended(self) {
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

/// Writes a status that says that the boat was seen.
pub(crate) async fn afloat(cx: Reconcile<Boat>) -> anyhow::Result<Action> {
    let condition = json!({
        "type": "Afloat", "status": "True", "reason": "Seen", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    // The author's condition `Valid` counts only while webhooks are on.
    let mut valid = condition.clone();
    valid["type"] = json!("Valid");
    let conditions = serde_json::from_value(json!([condition, valid]))?;
    let phase = format!("{} oars", cx.object.spec.oars);
    cx.apply_status(&BoatStatus { phase: Some(phase), conditions: Some(conditions) }).await?;
    Ok(Action::await_change())
}
