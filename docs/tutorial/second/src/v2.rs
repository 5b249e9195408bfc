//! The kind, in its second version: what is kept has a place of its own.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A backup of a volume, made again and again.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "tutorial.example", version = "v2", kind = "Backup", namespaced)]
pub struct BackupSpec {
    /// Name of the PersistentVolumeClaim.
    pub volume: String,
    /// When, as cron writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The backups to keep.
    pub retention: Retention,
}

/// The time for which backups are kept, and the number of copies.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Retention {
    /// Days that a backup is kept.
    pub days: u32,
    /// Copies of a backup; version 1 has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
}
