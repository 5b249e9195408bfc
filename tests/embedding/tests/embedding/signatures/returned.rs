//! A handler that returns a `bool`.

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis_webhook::{Context, Validate};
use std::sync::Arc;

fn main() {
    let _ = Validate::<ConfigMap>::new("a").on_create(|_: Arc<ConfigMap>, _: Context| async { true });
}
