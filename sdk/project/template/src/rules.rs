//! Rules for objects. What a schema or a CEL rule can express belongs into the CRD; webhooks are for the rest.

use std::sync::Arc;

use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};

use crate::v1;

/// The webhooks that the API server calls.
pub fn webhooks() -> Webhooks {
    Webhooks::new().validate(
        Validate::<v1::Kettle>::new("rules")
            .on_create_or_update(check),
    )
}

async fn check(new: Arc<v1::Kettle>, _: Context) -> Verdict {
    if new.spec.message.trim().is_empty() {
        return Verdict::deny("there is no message")
            .code(422)
            .cause("spec.message", "must not be blank");
    }
    Verdict::allow()
}
