//! Registered validators as rules that a controller asks.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_webhook::{Evaluation, Webhooks};
use serde_json::Value;

use crate::Validity;

impl Validity for Webhooks {
    fn problem<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Result<Option<String>, String>> {
        async move { problem(self.explain(object).await) }.boxed()
    }
}

/// What all of them find wrong; an error when one of them came to no verdict.
fn problem(evaluations: Vec<Evaluation>) -> Result<Option<String>, String> {
    let mut problems = Vec::new();
    for Evaluation { webhook, verdict, .. } in evaluations {
        let verdict = verdict.map_err(|problem| format!("webhook {webhook}: {problem}"))?;
        let Some(denial) = verdict.denial() else { continue };
        let mut text = denial.message().to_owned();
        for cause in denial.causes().iter().filter(|cause| !denial.message().contains(cause.message())) {
            text = format!("{text}; {}: {}", cause.field(), cause.message());
        }
        problems.push(text);
    }
    Ok((!problems.is_empty()).then(|| problems.join("; ")))
}
