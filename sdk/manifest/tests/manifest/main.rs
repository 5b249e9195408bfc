//! Manifests are generated, and settings are refused or mended before.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod deadlock;
mod deletion;
mod manifests;
mod rbac;
mod workload;
