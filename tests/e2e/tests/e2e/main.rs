//! The whole way, start to end: the demo, logins, credentials, the tool filter and what a running proxy reads again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod both_gates;
mod credentials;
mod current_cluster;
mod login;
mod tool_filter;

use portcullis_e2e::stage::Stage;
use tokio::sync::OnceCell;

/// A control plane with the operator at work on it, for tests that keep to a namespace of their own.
async fn stage() -> &'static Stage {
    static STAGE: OnceCell<Stage> = OnceCell::const_new();
    STAGE.get_or_init(|| async { Stage::start(|_| {}).await.unwrap() }).await
}
