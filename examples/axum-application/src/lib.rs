//! The operator that the application embeds: a webhook that refuses ConfigMaps with passwords.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis::operator::Operator;
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};

async fn no_passwords(new: Arc<ConfigMap>, _: Context) -> Verdict {
    if new.data.iter().flatten().any(|(key, _)| key == "password") {
        return Verdict::deny("passwords belong in Secrets").code(422).cause("data.password", "is a password");
    }
    Verdict::allow()
}

/// The operator: the application runs it, and `src/bin/manifests.rs` generates its manifests.
pub fn operator() -> Operator {
    let webhook = Validate::<ConfigMap>::new("no-passwords").on_create_or_update(no_passwords);
    Operator::new("axum-application").webhooks(Webhooks::new().validate(webhook))
}
