//! The log of running operators, shown when a test fails: the cause is mostly there, and not in the failed assertion.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

/// The number of lines that are shown of each log.
const SHOWN: usize = 20;

/// The logs of the operators that run.
static LOGS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A log that is shown at each panic of this process, until this is dropped.
#[derive(Debug)]
pub(crate) struct PanicLog(PathBuf);

impl PanicLog {
    pub(crate) fn of(log: PathBuf) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                before(panic);
                show();
            }));
        });
        LOGS.lock().unwrap_or_else(PoisonError::into_inner).push(log.clone());
        Self(log)
    }
}

impl Drop for PanicLog {
    fn drop(&mut self) {
        LOGS.lock().unwrap_or_else(PoisonError::into_inner).retain(|log| *log != self.0);
    }
}

#[allow(clippy::print_stderr, reason = "the test runner shows it with the test that panics")]
fn show() {
    let logs = LOGS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for log in logs {
        let lines = read(&log);
        if !lines.is_empty() {
            eprintln!("the last warnings and errors of {}:\n{}", log.display(), lines.join("\n"));
        }
    }
}

fn read(log: &Path) -> Vec<String> {
    let text = std::fs::read(log).unwrap_or_default();
    last_problems(&String::from_utf8_lossy(&text)).into_iter().map(str::to_owned).collect()
}

/// The last lines of a log, as text or JSON, that are warnings or errors.
fn last_problems(log: &str) -> Vec<&str> {
    let is_problem = |line: &&str| {
        ["WARN", "ERROR"].iter().any(|level| {
            line.split_whitespace().take(2).any(|word| word == *level)
                || line.contains(&format!(r#""level":"{level}""#))
        })
    };
    let mut lines: Vec<_> = log.lines().rev().filter(is_problem).take(SHOWN).collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_errors_are_found_in_both_formats() {
        let log = "2026-01-01T00:00:00Z  INFO ready\n\
                   2026-01-01T00:00:01Z  WARN reconcile{kind=Order}: reconcile failed\n\
                   {\"level\":\"INFO\",\"message\":\"no ERROR\"}\n\
                   {\"timestamp\":\"2026\",\"level\":\"ERROR\",\"message\":\"b\"}";
        let found = last_problems(log);
        assert!(matches!(*found, [one, two] if one.contains("reconcile failed") && two.contains("\"b\"")), "{found:?}");
        let many = "2026 WARN a\n".repeat(3 * SHOWN);
        assert_eq!(last_problems(&many).len(), SHOWN);
    }
}
