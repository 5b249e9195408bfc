//! An operator for backups.

mod defaults;
mod rules;
pub mod v1;

use portcullis::webhooks::Webhooks;

/// The webhooks that the API server calls.
pub fn webhooks() -> Webhooks {
    Webhooks::new().validate(rules::rules()).mutate(defaults::defaults())
}
