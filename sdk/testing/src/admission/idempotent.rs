//! Mutations that change their own result.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use portcullis_manifest::WebhookKind;
use portcullis_webhook::Operation;
use serde::Serialize;
use serde_json::Value;

use super::{Answer, Request, Reviews};
use crate::difference::differences;

/// Mutating twice is mutating once: `mutate(mutate(x)) = mutate(x)`.
///
/// The API server may call a mutating webhook again on its own result, within the same request (reinvocation) and with
/// every later change of the object. What must be the same is the object:
///
/// * created from `object`, and asked again about the result in the same creation,
/// * changed from the result to the result, as every writer does that touches something else,
/// * changed from the result back to `object` (a manifest that is applied again), and asked again about that.
///
/// Operations that the webhook has no handler for are left out.
///
/// # Panics
/// When the webhook changes or refuses its own result, showing where the two results differ; and when it refuses
/// `object` in the first place.
pub async fn assert_idempotent(reviews: &Reviews, webhook: &str, object: &(impl Serialize + Sync)) {
    let (create, update) = (Operation::Create, Operation::Update);
    let (creates, updates) =
        [create, update].map(|operation| reviews.takes(WebhookKind::Mutating, webhook, operation)).into();
    assert!(creates || updates, "mutating webhook '{webhook}' has no handler for CREATE or UPDATE");
    let first = if creates { reviews.create(object) } else { reviews.update(object, object) };
    let first = result(webhook, "the object", first).await;
    if creates {
        let again = result(webhook, "its own result, when the same creation asks again", reviews.create(&first)).await;
        same(webhook, "asked again in the same creation", &first, &again);
    }
    if updates {
        let again = result(webhook, "its own result, in an update", reviews.update(&first, &first)).await;
        same(webhook, "when the result is updated as it is", &first, &again);
        let applied = result(webhook, "the object again, in an update", reviews.update(&first, object)).await;
        let again =
            result(webhook, "its own result, when the same update asks again", reviews.update(&first, &applied)).await;
        same(webhook, "asked again when the object is applied again", &applied, &again);
    }
}

async fn result(webhook: &str, what: &str, request: Request<'_>) -> Value {
    let answer: Answer = request.mutate(webhook).await;
    assert!(answer.is_allowed(), "mutating webhook '{webhook}' refuses {what}\n{answer}");
    answer.patched()
}

fn same(webhook: &str, when: &str, first: &Value, second: &Value) {
    let differences = differences(first, second);
    if !differences.is_empty() {
        let lines = differences.join("\n  ");
        panic!(
            "mutating webhook '{webhook}' is not idempotent: {when}, it changes its own result (first -> second)\n  {lines}"
        );
    }
}
