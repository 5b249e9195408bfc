//! V1: which rules an object breaks, without asking a cluster.

use serde_json::Value;

use super::report::{Finding, Verdict};
use portcullis_webhook::{Denial, Evaluation, Webhooks};

const ID: &str = "V1";
const WHAT: &str = "which rules an object breaks";

/// Calls the registered validating webhooks for each object, as if it were created. Objects of kinds that webhooks read
/// from a cache also fill that cache. The last finding names what only the API server evaluates: schemas, CEL rules,
/// policies and mutating webhooks.
pub async fn explain(webhooks: &Webhooks, objects: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for problem in webhooks.fill_caches(objects) {
        findings.push(Finding { id: ID, what: WHAT, verdict: Verdict::Fail, message: problem, fix: None });
    }
    for object in objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let namespace = text("/metadata/namespace");
        let slash = if namespace.is_empty() { "" } else { "/" };
        let label = format!("{} {namespace}{slash}{}", text("/kind"), text("/metadata/name"));
        let mut say = |verdict, message: String, fix: Option<String>| {
            findings.push(Finding { id: ID, what: WHAT, verdict, message: format!("{label}: {message}"), fix });
        };
        let evaluations = webhooks.explain(object).await;
        if evaluations.is_empty() {
            say(Verdict::Info, "no validating webhook is called for it".to_owned(), None);
        }
        for Evaluation { webhook, verdict, unfilled } in evaluations {
            if !unfilled.is_empty() {
                let unfilled = unfilled.join(", ");
                let fix = format!("give a file with {unfilled} too: -f FILE -f OTHER-FILE");
                say(Verdict::Warn, format!("{webhook}: not evaluated: reads {unfilled}"), Some(fix));
                continue;
            }
            let verdict = match verdict {
                Ok(verdict) => verdict,
                Err(problem) => {
                    say(Verdict::Fail, format!("{webhook} cannot evaluate it: {problem}"), None);
                    continue;
                }
            };
            match verdict.denial() {
                None => say(Verdict::Ok, format!("{webhook} allows it"), None),
                Some(denial) if denial.causes().is_empty() => {
                    say(Verdict::Fail, format!("{webhook}: {}", denial.message()), None);
                }
                Some(denial) => {
                    let causes = denial.causes();
                    // It may be no more than the list of them.
                    let list = portcullis_webhook::Verdict::from_causes(causes.to_vec());
                    let listed = list.denial().map(Denial::message) == Some(denial.message());
                    for (index, cause) in causes.iter().enumerate() {
                        let (field, why) = (cause.field(), cause.message());
                        let message = if listed || index > 0 {
                            format!("{webhook}: {field}: {why}")
                        } else {
                            format!("{webhook}: {} ({field}: {why})", denial.message())
                        };
                        say(Verdict::Fail, message, Some(format!("change {field}")));
                    }
                }
            }
            for warning in verdict.warnings() {
                say(Verdict::Warn, format!("{webhook} warns: {warning}"), None);
            }
        }
    }
    let message = "only webhooks were asked: not the schema of a kind, its CEL rules, or policies of the cluster";
    let fix = Some("kubectl apply --dry-run=server -f FILE asks the API server about all of them".to_owned());
    findings.push(Finding { id: ID, what: WHAT, verdict: Verdict::Info, message: message.to_owned(), fix });
    findings
}
