//! An operator one of whose rules the API server keeps by itself, in a policy beside the webhook.
//!
//! ```text
//! cargo run -p portcullis-operator --example policy_operator -- generate policies
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis::operator::Operator;
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};

/// A handler, for the example's sake: a CEL expression could do this as well.
async fn named(new: Arc<ConfigMap>, _: Context) -> Verdict {
    match new.metadata.name.as_deref() {
        Some("forbidden") => Verdict::deny("name may not be 'forbidden'").code(422),
        _ => Verdict::allow(),
    }
}

fn main() -> ExitCode {
    let webhook = Validate::<ConfigMap>::new("small")
        .cel("!has(object.data) || object.data.size() <= 2", "data has more than 2 entries")
        .on_create_or_update(named);
    Operator::new("small-maps").webhooks(Webhooks::new().validate(webhook)).main()
}
