//! V1: which rules an object breaks, without asking a cluster.

use serde_json::Value;

use super::report::{Finding, Verdict};
use crate::webhooks::{Judgement, Webhooks};

const ID: &str = "V1";
const WHAT: &str = "which rules an object breaks";

/// Asks the registered validating webhooks about each object, as if it were created.
pub async fn explain(webhooks: &Webhooks, objects: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for object in objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let namespace = text("/metadata/namespace");
        let slash = if namespace.is_empty() { "" } else { "/" };
        let label = format!("{} {namespace}{slash}{}", text("/kind"), text("/metadata/name"));
        let mut say = |verdict, message: String, fix: Option<String>| {
            findings.push(Finding { id: ID, what: WHAT, verdict, message: format!("{label}: {message}"), fix });
        };
        let judgements = webhooks.explain(object).await;
        if judgements.is_empty() {
            say(Verdict::Info, "no validating webhook is called for it".to_owned(), None);
        }
        for Judgement { webhook, verdict } in judgements {
            let verdict = match verdict {
                Ok(verdict) => verdict,
                Err(problem) => {
                    say(Verdict::Fail, format!("{webhook} cannot judge it: {problem}"), None);
                    continue;
                }
            };
            match verdict.denial() {
                None => say(Verdict::Ok, format!("{webhook} lets it pass"), None),
                Some(denial) if denial.causes().is_empty() => {
                    say(Verdict::Fail, format!("{webhook}: {}", denial.message()), None);
                }
                Some(denial) => {
                    for cause in denial.causes() {
                        let fix = format!("change {}", cause.field());
                        let message =
                            format!("{webhook}: {} ({}: {})", denial.message(), cause.field(), cause.message());
                        say(Verdict::Fail, message, Some(fix));
                    }
                }
            }
            for warning in verdict.warnings() {
                say(Verdict::Warn, format!("{webhook} warns: {warning}"), None);
            }
        }
    }
    findings
}
