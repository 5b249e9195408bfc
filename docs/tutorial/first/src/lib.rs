//! An operator for backups.

mod defaults;
mod rules;
pub mod v1;

use portcullis::webhooks::Webhooks;

/// What the API server calls us for.
pub fn webhooks() -> Webhooks {
    Webhooks::new().validate(rules::rules()).mutate(defaults::defaults())
}
