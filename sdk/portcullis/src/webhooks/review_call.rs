//! One admission review, from its body to its answer.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_review::{ADMISSION_LIMIT, Review, Verdict};
use tokio::time::timeout_at;

use super::Context;
use super::admit::{Admit, Decision};
use super::decision_log::{Outcome, log};
use crate::routes::{Budget, Call, Endpoint, HttpError, Rejected, RouteLimits};

/// A registered webhook at its path.
pub(super) struct ReviewCalls {
    webhook: Arc<dyn Admit>,
    budget: Budget,
}

impl ReviewCalls {
    /// `budget` is for the bodies of all admission webhooks together.
    pub(super) fn new(webhook: Arc<dyn Admit>, budget: Budget) -> Self {
        Self { webhook, budget }
    }
}

impl Endpoint for ReviewCalls {
    fn label(&self) -> &str {
        &self.webhook.settings().name
    }

    fn limits(&self) -> RouteLimits {
        RouteLimits {
            body: ADMISSION_LIMIT,
            timeout: self.webhook.settings().timeout,
            concurrent: self.webhook.settings().concurrency,
            budget: self.budget.clone(),
        }
    }

    fn answer(&self, body: Bytes, call: Call) -> BoxFuture<'_, Result<Bytes, HttpError>> {
        async move {
            let review = Review::parse(&body).map_err(|error| HttpError::malformed(error.to_string()))?;
            decide(&*self.webhook, &review, call).await
        }
        .boxed()
    }
}

/// Has the webhook decide, within the deadline and whatever its handler does.
async fn decide(webhook: &dyn Admit, review: &Review<'_>, call: Call) -> Result<Bytes, HttpError> {
    let Call { began, deadline, .. } = call;
    let settings = webhook.settings();
    let request = &review.request;
    let context = Context::of_request(request, settings.side_effects);
    let admitted = AssertUnwindSafe(webhook.admit(request, context)).catch_unwind();
    let (reason, problem) = match timeout_at(deadline, admitted).await {
        Ok(Ok(Ok(Decision { verdict, patch, note }))) => {
            let outcome = Outcome::Decided { verdict: &verdict, patched: patch.is_some(), note: note.as_deref() };
            log(&settings.name, request, &outcome, began.elapsed());
            return Ok(review.answer(&verdict, patch.as_ref()).into());
        }
        Ok(Ok(Err(failure))) => (Rejected::Failed, failure.to_string()),
        Ok(Err(panic)) => {
            // The message of a panic is for the log: it may hold anything.
            let said = format!("handler panicked: {}", panic_message(&*panic));
            let outcome = Outcome::Failed { problem: &said, denied: settings.deny_on_failure };
            log(&settings.name, request, &outcome, began.elapsed());
            return failed(review, settings.deny_on_failure, Rejected::Panic, "handler failed".to_owned());
        }
        Err(_) => {
            let waited: Duration = deadline - began;
            (Rejected::Timeout, format!("handler did not finish within {} ms", waited.as_millis()))
        }
    };
    let outcome = Outcome::Failed { problem: &problem, denied: settings.deny_on_failure };
    log(&settings.name, request, &outcome, began.elapsed());
    failed(review, settings.deny_on_failure, reason, problem)
}

/// The answer where there is no decision: an HTTP error, or a denial where the webhook chose that.
fn failed(review: &Review<'_>, deny: bool, reason: Rejected, problem: String) -> Result<Bytes, HttpError> {
    if deny {
        return Ok(review.answer(&Verdict::deny(problem).code(500), None).into());
    }
    Err(HttpError::failed(reason, problem))
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
