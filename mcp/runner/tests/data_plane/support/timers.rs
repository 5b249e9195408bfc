//! Time that passes when a test says so, while sockets go on.

use std::sync::mpsc;
use std::time::Duration;

/// Tokio's timers in this runtime, stopped. A paused clock would jump ahead whenever the test waits for a socket; it does not while a thread is at
/// work.
pub(crate) struct Timers(mpsc::Sender<()>);

impl Timers {
    pub(crate) fn stop() -> Self {
        let (running, stopped) = mpsc::channel();
        drop(tokio::task::spawn_blocking(move || stopped.recv()));
        tokio::time::pause();
        Self(running)
    }

    pub(crate) async fn advance(&self, time: Duration) {
        tokio::time::advance(time).await;
    }

    /// From here on, whoever waits for a timer need not wait for it.
    pub(crate) fn go_on(self) {
        drop(self.0);
    }
}
