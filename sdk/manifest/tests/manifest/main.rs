//! Generated manifests, and settings that are refused or corrected before.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod deadlock;
mod deletion;
mod manifests;
mod rbac;
mod workload;
