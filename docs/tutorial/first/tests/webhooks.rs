//! The webhooks, in this process.

use backup_operator::v1::{Backup, BackupSpec};
use backup_operator::webhooks;
use portcullis_testing::admission::{Reviews, assert_idempotent};
use serde_json::json;

fn backup(schedule: Option<&str>, keep_days: u32) -> Backup {
    let spec = BackupSpec { volume: "data".to_owned(), schedule: schedule.map(str::to_owned), keep_days };
    Backup::new("nightly", spec)
}

#[tokio::test]
async fn a_schedule_has_five_fields() {
    let reviews = Reviews::new(&webhooks()).unwrap();
    reviews.create(&backup(Some("daily"), 7)).validate("rules").await.assert_denied(422, "'daily' is no schedule");
    reviews.create(&backup(Some("0 4 * * 1"), 7)).validate("rules").await.assert_allowed();
}

#[tokio::test]
async fn only_an_admin_shortens_the_time_that_backups_are_kept() {
    let reviews = Reviews::new(&webhooks()).unwrap();
    let (old, new) = (backup(None, 30), backup(None, 7));
    let answer = reviews.update(&old, &new).user("alice").validate("rules").await;
    answer.assert_denied(403, "keeping backups for less long deletes some: ask one of backup-admins");
}

#[tokio::test]
async fn a_missing_field_gets_its_default_once() {
    let reviews = Reviews::new(&webhooks()).unwrap();
    let answer = reviews.create(&backup(None, 7)).mutate("defaults").await;
    assert_eq!(answer.patched()["spec"]["schedule"], json!("0 3 * * *"));
    assert_idempotent(&reviews, "defaults", &backup(None, 7)).await;
}
