//! Webhooks that are tried: asked as if they decided, beside the request, which never waits for them.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use mcp_middleware::Outcome;
use mcp_runconfig::webhook::{MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};
use mcp_wire::{Kind, OwnedMessage};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::call::{CallError, Webhook};
use super::review::{Refusal, Review, Verdict};
use super::trial::Trial;
use super::{Asking, called};

/// The least that a call takes of it: 256 are under way, 64 of them one client's.
const LEAST: usize = 64 << 10;

/// The outcome that a request would have, and why, where it is no plain yes.
type Tried = (Outcome, Option<String>);

impl Asking {
    /// Asks a webhook about a request whose body is `body` by now, in a task of its own. What it says is counted, and changes nothing.
    pub(super) fn try_out(
        self: &Arc<Self>,
        trial: &Trial,
        hook: &Arc<Webhook>,
        review: &Review,
        body: Bytes,
        payload: Option<Bytes>,
    ) {
        if review.message.body().len() > MAX_REQUEST_BYTES {
            let refusal = Refusal::too_long();
            review.context.decided_in_shadow(&trial.shadow, Outcome::Denied, Instant::now());
            return log(hook, Outcome::Denied, Some(&refusal.reason));
        }
        // The message, what the webhook is sent, and its answer.
        let amount = (4 * body.len()).max(LEAST);
        let longest = (amount - 2 * body.len()).min(MAX_RESPONSE_BYTES);
        let Some(share) = trial.calls.take(&review.context.client(), amount) else {
            trial.shadow.drop_call();
            tracing::debug!(webhook = hook.name, "a shadow is not asked: too many of its calls are under way");
            return;
        };
        let (asking, hook, review, shadow) = (Arc::clone(self), Arc::clone(hook), review.clone(), trial.shadow.clone());
        let under_way = (trial.running.begin(), review.context.run_in_shadow());
        let (started, over) = (Instant::now(), trial.over());
        tokio::spawn(async move {
            let verdict = asking.verdict(&hook, &review, body, payload, longest);
            let tried = tokio::select! {
                tried = verdict => tried,
                () = over => return,
            };
            if let Some((outcome, reason)) = tried {
                log(&hook, outcome, reason.as_deref());
                review.context.decided_in_shadow(&shadow, outcome, started);
            } else {
                shadow.drop_call();
                tracing::info!(webhook = hook.name, longest, "a shadow's answer is too long to be tried");
            }
            drop((under_way, share));
        });
    }

    /// The outcome that the request would have, were it for this webhook alone; `None` where its answer is longer than a shadow's may be.
    async fn verdict(
        &self,
        hook: &Webhook,
        review: &Review,
        body: Bytes,
        payload: Option<Bytes>,
        longest: usize,
    ) -> Option<Tried> {
        let payload = match payload.filter(|_| !self.is_mutating()) {
            Some(payload) => Some(payload),
            None => self.payload(review, body.clone()).await,
        };
        let answer = called(hook, payload, longest).await;
        // Another status says it all.
        if matches!(answer, Err(CallError::TooLong { status: StatusCode::OK, limit }) if limit < MAX_RESPONSE_BYTES) {
            return None;
        }
        let failure = answer.as_ref().err().map(ToString::to_string);
        // The log would tell of a refusal that there is not.
        let weighed = self.weigh(hook, review, &body, answer).with_subscriber(NoSubscriber::new());
        let (outcome, verdict) = weighed.await;
        Some(match verdict {
            Verdict::Pass => (outcome, failure),
            Verdict::Refuse(refusal) => (outcome, Some(failure.unwrap_or_else(|| refusal.reason.into_owned()))),
            // A message that webhooks spoil is refused.
            Verdict::Change(changed) => match OwnedMessage::read(changed) {
                Ok(message) if message.kind() != Kind::Response => (outcome, None),
                _ => (Outcome::Failed, Some("its patch spoils the message".to_owned())),
            },
        })
    }
}

fn log(hook: &Webhook, outcome: Outcome, reason: Option<&str>) {
    let (webhook, refuses, outcome) = (&hook.name, outcome.refuses(), outcome.as_str());
    match reason {
        _ if refuses => tracing::info!(webhook, outcome, reason, "a shadow would refuse the request"),
        Some(reason) => tracing::info!(webhook, outcome, reason, "a shadow has failed, and would be ignored"),
        None => {}
    }
}
