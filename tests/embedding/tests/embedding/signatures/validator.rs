//! A validator of ConfigMaps that is registered for Secrets.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use portcullis_webhook::{BoxError, Context, Operation, Validate, Validator, Verdict};
use std::sync::Arc;

struct Quota;

impl Validator<ConfigMap> for Quota {
    const OPERATIONS: &'static [Operation] = &[Operation::Create];

    async fn create(&self, _: Arc<ConfigMap>, _: Context) -> Result<Verdict, BoxError> {
        Ok(Verdict::allow())
    }
}

fn main() {
    let _ = Validate::<Secret>::new("a").validator(Arc::new(Quota));
}
