//! A method for CREATE that is registered for UPDATE.

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis_webhook::{Context, Validate, Verdict};
use std::sync::Arc;

struct Quota;

impl Quota {
    async fn update(&self, _: Arc<ConfigMap>, _: Context) -> Verdict {
        Verdict::allow()
    }
}

fn main() {
    let _ = Validate::<ConfigMap>::named("a").state(Arc::new(Quota)).on_update(Quota::update);
}
