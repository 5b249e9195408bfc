//! The kind, in its first version.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A backup of a volume, made again and again.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "tutorial.example", version = "v1", kind = "Backup", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    /// Name of the PersistentVolumeClaim.
    pub volume: String,
    /// When, as cron writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Days that a backup is kept.
    pub keep_days: u32,
}
