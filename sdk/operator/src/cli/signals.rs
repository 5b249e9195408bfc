//! The signals that ask the process to end.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Signals this close are one: `timeout`, and programs that pass a terminal's signal on to their children, send it
/// twice.
const ECHO: Duration = Duration::from_millis(500);

/// The signals that ask the process to end.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    last: Option<Instant>,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, last: None })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        loop {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
            };
            if self.is_new() {
                return name;
            }
        }
    }

    /// Whether a signal that comes now is more than an echo of the last one that counted; it counts then.
    pub(super) fn is_new(&mut self) -> bool {
        let now = Instant::now();
        let new = self.last.is_none_or(|last| now.duration_since(last) > ECHO);
        if new {
            self.last = Some(now);
        }
        new
    }
}
