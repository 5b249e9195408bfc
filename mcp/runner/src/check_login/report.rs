//! The findings of a check as text, and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::check_login::verdict::{Cause, Finding, Status, Step};
use crate::text::clean;

/// All steps in their order, each with its finding.
#[derive(Debug)]
pub(crate) struct Report {
    url: String,
    findings: Vec<Finding>,
}

impl Status {
    /// The word of a report for it.
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl Report {
    /// A report of a login at `url` without `secrets`, which a server may have repeated in what it says.
    pub(crate) fn new(url: String, mut findings: Vec<Finding>, secrets: &[String]) -> Self {
        findings.sort_by_key(|finding| finding.step);
        let failed =
            findings.iter().find(|finding| finding.status == Status::Failed).map(|finding| finding.step.name());
        let why = failed.map_or_else(|| "not reached".to_owned(), |step| format!("not reached: {step} failed"));
        for (at, step) in Step::ALL.iter().enumerate() {
            if findings.get(at).is_none_or(|finding| finding.step != *step) {
                findings.insert(at, Finding::skipped(*step, &why));
            }
        }
        for finding in &mut findings {
            finding.seen = clean(&finding.seen, secrets);
        }
        Self { url, findings }
    }

    /// The first step that failed.
    pub(crate) fn failed(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.status == Status::Failed)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for finding in &self.findings {
            let _ = writeln!(text, "{:<8} {:<21} {}", finding.status.word(), finding.step.name(), finding.seen);
        }
        let (mut failed, mut notes) = (Vec::new(), Vec::new());
        for finding in &self.findings {
            match finding.status {
                Status::Failed => failed.push(finding),
                Status::Note => notes.push(finding),
                Status::Ok | Status::Skipped => {}
            }
        }
        for finding in failed.iter().chain(&notes) {
            let Some(verdict) = finding.cause.map(Cause::verdict) else { continue };
            let (word, step) = (if finding.status == Status::Failed { "Failed" } else { "Note" }, finding.step.name());
            let _ = writeln!(text, "\n{word}: {step}: {}", verdict.name);
            let _ = writeln!(text, "  seen:  {}", finding.seen);
            let _ = writeln!(text, "  whose: {}", verdict.side.person());
            let _ = writeln!(text, "  cure:  {}", verdict.cure);
        }
        let _ = match failed.first() {
            Some(first) => writeln!(text, "\nThe login at {} fails at the step {}.", self.url, first.step.name()),
            None => writeln!(text, "\nNo step of the login at {} failed.", self.url),
        };
        text
    }

    pub(crate) fn json(&self) -> Value {
        let steps = self.findings.iter().map(|finding| {
            let mut step = json!({
                "step": finding.step.name(), "status": finding.status.word(), "seen": finding.seen,
            });
            if let Some(verdict) = finding.cause.map(Cause::verdict) {
                step["verdict"] = verdict.name.into();
                step["side"] = verdict.side.name().into();
                step["cure"] = verdict.cure.into();
            }
            step
        });
        let failed = self.failed().map(|finding| finding.step.name());
        json!({
            "url": self.url, "result": if failed.is_some() { "failed" } else { "ok" }, "failedStep": failed,
            "steps": steps.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_told_in_order_and_no_secret() {
        let findings = vec![
            Finding::note(Cause::PreflightHeaders, "the token s3cret"),
            Finding::ok(Step::Reach, "https://h says s3cret"),
            Finding::failed(Cause::ServerForbids, "403"),
        ];
        let report = Report::new("https://h".to_owned(), findings, &["s3cret".to_owned(), String::new()]);
        let json = report.json();
        let steps: Vec<_> =
            json["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
        assert_eq!(steps, Step::ALL.iter().map(|step| step.name()).collect::<Vec<_>>());
        assert_eq!((json["result"].as_str(), json["failedStep"].as_str()), (Some("failed"), Some("challenge")));
        assert_eq!(json["steps"][2]["seen"], "not reached: challenge failed");
        for told in [json.to_string(), report.text()] {
            assert!(!told.contains("s3cret") && told.contains("[redacted]"), "{told}");
        }
        assert!(report.text().contains("Failed: challenge: server-forbids"));
    }
}
