//! Tests take turns: configurations of cluster-wide operators are for all namespaces. Most of their time is waiting for
//! Leases, so two have a turn at once, each with a control plane of its own.

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
        tokio::select! {
            alone = FIRST.lock() => Self { cluster: ControlPlane::shared().await, _alone: alone },
            alone = SECOND.lock() => {
                let other = OTHER.get_or_init(|| async { ControlPlane::start().await.unwrap() }).await;
                Self { cluster: other, _alone: alone }
            }
        }
    }
}
