//! Registered validators as rules that a controller evaluates.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_webhook::{Evaluation, Webhooks};
use serde_json::Value;

use crate::{Validation, Validators};

impl Validators for Webhooks {
    fn validate<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Result<Validation, String>> {
        async move { validation(self.explain(object).await) }.boxed()
    }
}

/// Joins the verdicts of all validators; an error if one of them failed.
fn validation(evaluations: Vec<Evaluation>) -> Result<Validation, String> {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    for Evaluation { webhook, verdict, .. } in evaluations {
        let verdict = verdict.map_err(|problem| format!("webhook {webhook}: {problem}"))?;
        warnings.extend_from_slice(verdict.warnings());
        let Some(denial) = verdict.denial() else { continue };
        let mut text = denial.message().to_owned();
        for cause in denial.causes().iter().filter(|cause| !denial.message().contains(cause.message())) {
            text = format!("{text}; {}: {}", cause.field(), cause.message());
        }
        problems.push(text);
    }
    Ok(Validation { problem: (!problems.is_empty()).then(|| problems.join("; ")), warnings })
}
