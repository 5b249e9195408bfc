//! From version to version.

use portcullis::conversion::Convert;

use crate::{v1, v2};

/// The conversion webhook: version 2 is stored, version 1 is converted from and to it.
pub(crate) fn conversion() -> Convert<v2::Backup> {
    Convert::<v2::Backup>::hub().spoke::<v1::Backup>(to_v2, to_v1)
}

fn to_v2(old: v1::Backup) -> v2::Backup {
    let v1::BackupSpec { volume, schedule, keep_days } = old.spec;
    let retention = v2::Retention { days: keep_days, copies: None };
    v2::Backup { metadata: old.metadata, spec: v2::BackupSpec { volume, schedule, retention } }
}

fn to_v1(new: v2::Backup) -> v1::Backup {
    let v2::BackupSpec { volume, schedule, retention } = new.spec;
    v1::Backup { metadata: new.metadata, spec: v1::BackupSpec { volume, schedule, keep_days: retention.days } }
}
