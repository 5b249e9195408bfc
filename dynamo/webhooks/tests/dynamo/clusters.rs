//! The control planes of these tests, and the operators that several of them use.

use portcullis_testing::{ControlPlane, OperatorBinary, RunningOperator};
use tokio::sync::OnceCell;

/// Duration, deadline, renewal, settling, grace and freshness of Leases: a third of the real ones. All operators have the same.
const TIMING: &str = "8s,6s,1s,5s,2s,4s";

pub(crate) fn binary() -> OperatorBinary {
    OperatorBinary::new(env!("CARGO_BIN_EXE_dynamo-webhooks"))
}

/// With the Leases of these tests, and a log that they read.
pub(crate) fn binary_on_time() -> OperatorBinary {
    binary().run_flags(["--lease-timing", TIMING, "--log-format", "json"])
}

/// The cluster-wide operator, whose webhooks judge the objects of every namespace that no other operator holds.
pub(crate) async fn cluster_wide() -> (&'static ControlPlane, &'static RunningOperator) {
    static OPERATOR: OnceCell<RunningOperator> = OnceCell::const_new();
    let cluster = ControlPlane::shared().await;
    (cluster, OPERATOR.get_or_init(|| async { binary_on_time().install(cluster).await }).await)
}

/// A control plane that never has cluster-wide webhooks: what is wrong is stored there, where no restricted operator refuses it.
pub(crate) async fn unguarded() -> &'static ControlPlane {
    static UNGUARDED: OnceCell<ControlPlane> = OnceCell::const_new();
    UNGUARDED.get_or_init(|| async { ControlPlane::start().await.unwrap() }).await
}
