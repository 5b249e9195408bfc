//! One admission review, from its body to its answer.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_manifest::WebhookKind;
use portcullis_review::{ADMISSION_LIMIT, Review, Verdict};
use tokio::time::timeout_at;
use tracing::field::{Empty, display};
use tracing::{Instrument as _, debug_span};

use super::Context;
use super::admit::Admit;
use super::decision::{Decision, Failure, HANDLER_FAILED};
use super::decision_log::{Outcome, log};
use crate::metrics::{AdmissionMetrics, Decided};
use crate::rejected::Rejected;
use crate::routes::{Budget, Call, Endpoint, HttpError, RouteLimits};

/// Returns why reviews of objects in a namespace are skipped; `None` where this operator decides.
pub(super) type Skip = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A registered webhook at its path.
pub(super) struct ReviewCalls {
    webhook: Arc<dyn Admit>,
    kind: WebhookKind,
    metrics: AdmissionMetrics,
    budget: Budget,
    skip: Arc<Skip>,
}

impl ReviewCalls {
    /// `budget` is for the bodies of all admission webhooks together.
    pub(super) fn new(webhook: Arc<dyn Admit>, metrics: AdmissionMetrics, budget: Budget, skip: Arc<Skip>) -> Self {
        let kind = webhook.settings().entry.kind;
        Self { webhook, kind, metrics, budget, skip }
    }

    /// Its name in the log.
    fn name(&self) -> &str {
        self.webhook.settings().shown_name()
    }
}

impl Endpoint for ReviewCalls {
    fn limits(&self) -> RouteLimits {
        RouteLimits {
            body: ADMISSION_LIMIT,
            timeout: self.webhook.settings().timeout(),
            concurrent: self.webhook.settings().concurrency,
            budget: self.budget.clone(),
        }
    }

    fn waits_for(&self) -> Option<String> {
        let unfilled = self.webhook.settings().unfilled().next()?;
        Some(format!("the first list of {}, which this webhook reads, is not complete yet", unfilled.resource()))
    }

    fn answer(&self, body: Bytes, call: Call) -> BoxFuture<'_, Result<Bytes, HttpError>> {
        async move {
            let review = Review::parse(&body).map_err(|error| HttpError::malformed(error.to_string()))?;
            // Debug, as spans of requests commonly are: with the usual subscribers a span costs half as much as a
            // decision.
            let span = debug_span!("review", webhook = self.name(), uid = &*review.request.uid, trace = Empty);
            if let Some(trace) = call.trace {
                span.record("trace", display(trace));
            }
            self.decide(&review, call).instrument(span).await
        }
        .boxed()
    }
}

impl ReviewCalls {
    /// Runs the webhook within the deadline, whatever its handler does.
    async fn decide(&self, review: &Review<'_>, call: Call) -> Result<Bytes, HttpError> {
        let request = &review.request;
        // Check this before decoding: another operator's objects may be of a version that we cannot read.
        if let Some(why) = (self.skip)(&request.namespace) {
            let skips = match self.kind {
                WebhookKind::Validating => "validation",
                WebhookKind::Mutating => "mutation",
            };
            let note = format!("skipping {skips} - {why}");
            return Ok(self.decided(review, &Decision::skipped(&note), call));
        }
        let admitted = AssertUnwindSafe(
            self.webhook.admit(request, Context::of_request(request, self.webhook.settings().entry.side_effects)),
        )
        .catch_unwind();
        match timeout_at(call.deadline, admitted).await {
            Ok(Ok(Ok(decision))) => Ok(self.decided(review, &decision, call)),
            Ok(Ok(Err(failure))) => {
                let problem = failure.to_string();
                let said =
                    if matches!(failure, Failure::Handler(_)) { HANDLER_FAILED.to_owned() } else { problem.clone() };
                self.failed(review, call, Rejected::Failed, &problem, said)
            }
            // The message of a panic is for the log: it may hold anything.
            Ok(Err(panic)) => {
                let logged = format!("handler panicked: {}", panic_message(&*panic));
                self.failed(review, call, Rejected::Panic, &logged, HANDLER_FAILED.to_owned())
            }
            Err(_) => {
                let waited: Duration = call.deadline - call.began;
                let problem = format!("handler did not finish within {} ms", waited.as_millis());
                self.failed(review, call, Rejected::Timeout, &problem, problem.clone())
            }
        }
    }

    fn decided(&self, review: &Review<'_>, decision: &Decision, call: Call) -> Bytes {
        let Decision { verdict, patch, note } = decision;
        let decided = match (verdict.denial(), patch) {
            (Some(_), _) => Decided::Deny,
            (None, Some(patch)) => {
                self.metrics.patched(patch.as_json().len());
                Decided::Patch
            }
            (None, None) => Decided::Allow,
        };
        let outcome = Outcome::Decided { verdict, note: note.as_deref() };
        self.conclude(review, decided, &outcome, call);
        review.answer(verdict, patch.as_ref()).into()
    }

    /// The answer where there is no decision: an HTTP error, or a denial where the webhook chose that. The log may
    /// say more than the user sees.
    fn failed(
        &self,
        review: &Review<'_>,
        call: Call,
        reason: Rejected,
        logged: &str,
        said: String,
    ) -> Result<Bytes, HttpError> {
        let deny = self.webhook.settings().deny_on_failure;
        let decided = if deny { Decided::Deny } else { Decided::Error };
        self.conclude(review, decided, &Outcome::Failed { problem: logged }, call);
        if deny {
            self.metrics.denied_for(reason);
            return Ok(review.answer(&Verdict::deny(said).code(500), None).into());
        }
        Err(HttpError::failed(reason, said))
    }

    /// Logs and counts.
    fn conclude(&self, review: &Review<'_>, decided: Decided, outcome: &Outcome<'_>, call: Call) {
        let (request, took) = (&review.request, call.began.elapsed());
        log(self.kind, self.name(), request, decided, outcome, took, call.trace);
        self.metrics.count(request.operation, decided, request.dry_run.unwrap_or_default(), took);
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
