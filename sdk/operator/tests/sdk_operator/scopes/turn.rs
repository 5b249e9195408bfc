//! Tests take turns: configurations of cluster-wide operators are for all namespaces. Most of their time is waiting for
//! Leases, so two have a turn at once, each with a control plane of its own; with controllers, because it is one of those
//! that fills the ClusterRoles `edit` and `admin`.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use kube::api::{Api, DeleteParams, ListParams};
use portcullis_testing::ControlPlane;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// A control plane on which nothing else happens, until this is dropped.
pub(crate) struct Turn {
    pub(crate) cluster: &'static ControlPlane,
    _alone: MutexGuard<'static, ()>,
}

impl Turn {
    pub(crate) async fn take() -> Self {
        static FIRST: Mutex<()> = Mutex::const_new(());
        static SECOND: Mutex<()> = Mutex::const_new(());
        static OTHER: OnceCell<ControlPlane> = OnceCell::const_new();
        let turn = tokio::select! {
            alone = FIRST.lock() => Self { cluster: ControlPlane::shared_with_controller_manager().await, _alone: alone },
            alone = SECOND.lock() => {
                let other = OTHER.get_or_init(|| async { ControlPlane::builder().controller_manager().start().await.unwrap() }).await;
                Self { cluster: other, _alone: alone }
            }
        };
        forget(turn.cluster).await;
        turn
    }
}

/// Removes the policies and configurations that earlier tests left.
async fn forget(cluster: &ControlPlane) {
    let ours = ListParams::default().labels("app.kubernetes.io/name=scopes");
    let (delete, client) = (DeleteParams::default(), cluster.admin());
    Api::<ValidatingAdmissionPolicyBinding>::all(client.clone()).delete_collection(&delete, &ours).await.unwrap();
    Api::<ValidatingAdmissionPolicy>::all(client.clone()).delete_collection(&delete, &ours).await.unwrap();
    Api::<ValidatingWebhookConfiguration>::all(client).delete_collection(&delete, &ours).await.unwrap();
}
