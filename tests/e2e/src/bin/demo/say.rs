//! The output of the demo.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

static CHAPTER: AtomicUsize = AtomicUsize::new(1);

/// Notified when the output of the demo is closed.
pub(crate) static UNHEARD: Notify = Notify::const_new();

pub(crate) fn say(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        UNHEARD.notify_one();
    }
}

pub(crate) fn chapter(title: &str) {
    say(&format!("\n{}. {title}", CHAPTER.fetch_add(1, Ordering::Relaxed)));
}

pub(crate) fn step(what: &str) {
    say(&format!("   - {what}"));
}

pub(crate) fn shown(text: &str) {
    for line in text.lines() {
        say(&format!("       {line}"));
    }
}
