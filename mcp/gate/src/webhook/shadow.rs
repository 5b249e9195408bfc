//! Webhooks that are tried: asked as if they decided, beside the request, which never waits for them.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use mcp_middleware::Outcome;
use mcp_runconfig::webhook::MAX_REQUEST_BYTES;
use mcp_wire::{Kind, OwnedMessage};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::Asking;
use super::call::Webhook;
use super::review::{Review, Verdict};
use super::trial::Trial;

/// The least that a call takes of it: 256 are under way, 64 of them one client's.
const LEAST: usize = 64 << 10;

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
        // The message, and what the webhook is sent.
        let amount = (2 * body.len()).max(LEAST);
        let Some(share) = trial.calls.take(&review.context.client(), amount) else {
            trial.shadow.drop_call();
            tracing::debug!(webhook = hook.name, "a shadow is not asked: too many of its calls are under way");
            return;
        };
        let (asking, hook, review, shadow) = (Arc::clone(self), Arc::clone(hook), review.clone(), trial.shadow.clone());
        let under_way = (trial.running.begin(), review.context.run_in_shadow());
        let (started, over) = (Instant::now(), trial.over());
        tokio::spawn(async move {
            // The log would tell of a refusal that there is not.
            let verdict = asking.verdict(&hook, &review, body, payload).with_subscriber(NoSubscriber::new());
            let outcome = tokio::select! {
                outcome = verdict => outcome,
                () = over => return,
            };
            if outcome.refuses() {
                tracing::info!(webhook = hook.name, outcome = outcome.as_str(), "a shadow would refuse the request");
            }
            review.context.decided_in_shadow(&shadow, outcome, started);
            drop((under_way, share));
        });
    }

    /// The outcome that the request would have, were it for this webhook alone.
    async fn verdict(&self, hook: &Webhook, review: &Review, body: Bytes, payload: Option<Bytes>) -> Outcome {
        if review.message.body().len() > MAX_REQUEST_BYTES {
            return Outcome::Denied;
        }
        let payload = match payload.filter(|_| !self.is_mutating()) {
            Some(payload) => Some(payload),
            None => self.payload(review, body.clone()).await,
        };
        let (outcome, verdict) = self.ask(hook, review, &body, payload).await;
        let Verdict::Change(changed) = verdict else { return outcome };
        // A message that webhooks spoil is refused.
        let is_spoilt = OwnedMessage::read(changed).map_or(true, |message| message.kind() == Kind::Response);
        if is_spoilt { Outcome::Failed } else { outcome }
    }
}
