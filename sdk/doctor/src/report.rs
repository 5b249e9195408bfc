//! Findings, and their report as text.

use std::fmt::{self, Write as _};

use serde::Serialize;

use portcullis_client::escape_control;

/// The prefix of a message that says that a check had nothing to look at.
pub(super) const UNSEEN: &str = "not looked: ";

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The check passed.
    Ok,
    /// Worth knowing; nothing to do.
    Info,
    /// It works, but not for long or not always; or it could not be checked.
    Warn,
    /// The check failed.
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "OK",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        })
    }
}

/// One result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Id of the check, such as `W1`.
    pub id: &'static str,
    /// Subject of the check.
    pub what: &'static str,
    /// Severity.
    pub verdict: Verdict,
    /// The observation.
    pub message: String,
    /// The fix, usually a command. It is never run from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// The findings of all checks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The installation: operator, release and namespace.
    pub subject: String,
    /// The number of requests that were sent to the API server.
    pub requests: usize,
    /// The findings of every check, in the order of [`CATALOGUE`](crate::CATALOGUE).
    pub findings: Vec<Finding>,
}

impl Report {
    /// The number of findings with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// The report as text. The worst findings come last, where a terminal shows them; checks that passed, and the
    /// reasons for skipped ones, only with `all`.
    pub fn text(&self, colours: bool, all: bool) -> String {
        let mut text = String::new();
        let folded = |finding: &&Finding| finding.verdict == Verdict::Info && finding.message.starts_with(UNSEEN);
        let shown = self.findings.iter().filter(|finding| all || finding.verdict > Verdict::Ok && !folded(finding));
        let mut shown: Vec<_> = shown.collect();
        let unseen: Vec<_> = self.findings.iter().filter(folded).map(|finding| finding.id).collect();
        if !all && !unseen.is_empty() {
            let _ = writeln!(text, "{} {UNSEEN}{} (--all says why)", paint(Verdict::Info, colours), unseen.join(", "));
        }
        shown.sort_by_key(|finding| finding.verdict);
        // Writing to a `String` cannot fail.
        for Finding { id, message, fix, verdict, .. } in shown {
            let message = escape_control(message).replace('\n', "\n          ");
            let _ = writeln!(text, "{} {id:<4} {message}", paint(*verdict, colours));
            if let Some(fix) = fix {
                let _ = writeln!(text, "          fix: {}", escape_control(fix).replace('\n', "\n               "));
            }
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let counts = [Verdict::Ok, Verdict::Info, Verdict::Warn, Verdict::Fail];
        let counts: Vec<_> = counts.iter().map(|verdict| format!("{} {verdict}", self.count(*verdict))).collect();
        let _ = writeln!(text, "{}: {} ({} requests)", escape_control(&self.subject), counts.join(", "), self.requests);
        text
    }
}

fn paint(verdict: Verdict, colours: bool) -> String {
    let colour = match verdict {
        Verdict::Ok => 32,
        Verdict::Info => 36,
        Verdict::Warn => 33,
        Verdict::Fail => 31,
    };
    if colours { format!("\x1b[{colour}m{verdict:<4}\x1b[0m") } else { format!("{verdict:<4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let finding = |id, verdict, message: &str, fix: Option<&str>| Finding {
            id,
            what: "a question",
            verdict,
            message: message.to_owned(),
            fix: fix.map(str::to_owned),
        };
        let findings = vec![
            finding("W1", Verdict::Fail, "it is gone", Some("put it back\nand look again")),
            finding("W2", Verdict::Ok, "all is well", None),
            finding("W10", Verdict::Info, "by the way", None),
        ];
        Report { subject: "op in demo".to_owned(), requests: 7, findings }
    }

    #[test]
    fn the_report_ends_with_the_worst_and_hides_passed_checks() {
        assert_eq!(
            report().text(false, false),
            "INFO W10  by the way\nFAIL W1   it is gone\n          fix: put it back\n               and look again\n\n\
             op in demo: 1 OK, 1 INFO, 0 WARN, 1 FAIL (7 requests)\n"
        );
        assert!(report().text(false, true).starts_with("OK   W2   all is well\n"));
        let mut report = report();
        for id in ["C5", "X6"] {
            let message = format!("{UNSEEN}nothing answered");
            report.findings.push(Finding { id, verdict: Verdict::Info, message, ..report.findings[0].clone() });
        }
        assert!(report.text(false, false).starts_with("INFO not looked: C5, X6 (--all says why)\nINFO W10"));
        assert!(report.text(false, true).contains("\nINFO X6   not looked: nothing answered\n"));
        assert!(report.text(true, false).contains("\x1b[31mFAIL\x1b[0m W1"));
    }

    // Any user who may write to the cluster may have written names and messages.
    #[test]
    fn foreign_text_cannot_steer_the_terminal_or_fake_a_finding() {
        let mut report = report();
        report.findings.truncate(1);
        report.findings[0].message = "Entity a\x1b[2J\nOK   W1   all is well".to_owned();
        let text = report.text(true, false);
        assert!(text.contains("W1   Entity a\\u{1b}[2J\n          OK   W1   all is well\n"), "{text}");
    }

    #[test]
    fn programs_read_words_of_the_catalogue() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["findings"][0]["verdict"], "FAIL");
        assert_eq!(json["findings"][1].get("fix"), None);
    }
}
