//! The life of the operator itself: installed, upgraded, killed, broken, removed. There is one installation on the
//! node, so one test runs at a time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "in a test this is the failure"
)]

mod doctor;
mod kills;
mod leader;
mod lifecycle;

use tokio::sync::{Mutex, MutexGuard};

static INSTALLATION: Mutex<()> = Mutex::const_new(());

/// The only installation, for one test.
async fn alone() -> MutexGuard<'static, ()> {
    INSTALLATION.lock().await
}
