//! Mutations that change their own result.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use portcullis_manifest::WebhookKind;
use portcullis_webhook::Operation;
use serde::Serialize;
use serde_json::Value;

use super::{Answer, Request, Reviews};
use crate::difference::differences;

/// Asserts that a mutating webhook is idempotent: `mutate(mutate(x)) = mutate(x)`.
///
/// The API server may call a mutating webhook again on its own result, within the same request (reinvocation) and with
/// every later change of the object. The webhook must not change its result
///
/// * when `object` is created, and the same creation calls it again,
/// * when the result is updated to itself, as by a writer that changes something else,
/// * when the result is updated back to `object` (a manifest is applied again), and the same update calls it again.
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
