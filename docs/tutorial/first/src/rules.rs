//! The rules for a Backup.

use std::sync::Arc;

use portcullis::webhooks::{Context, Validate, Verdict};

use crate::v1::Backup;

/// The group whose members may shorten the time.
const ADMINS: &str = "backup-admins";

/// The validating webhook.
pub(crate) fn rules() -> Validate<Backup> {
    Validate::<Backup>::new("rules").on_create(create).on_update(update)
}

async fn create(new: Arc<Backup>, _: Context) -> Verdict {
    match &new.spec.schedule {
        Some(schedule) if schedule.split_whitespace().count() != 5 => {
            Verdict::deny(format!("'{schedule}' is no schedule"))
                .code(422)
                .cause("spec.schedule", "must have five fields, as in '0 3 * * *'")
        }
        _ => Verdict::allow(),
    }
}

async fn update(old: Arc<Backup>, new: Arc<Backup>, cx: Context) -> Verdict {
    let shorter = new.spec.keep_days < old.spec.keep_days;
    if shorter && !cx.user.groups.iter().any(|group| group == ADMINS) {
        return Verdict::deny(format!("keeping backups for less long deletes some: ask one of {ADMINS}")).code(403);
    }
    create(new, cx).await
}
