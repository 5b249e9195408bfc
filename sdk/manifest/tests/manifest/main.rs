//! What is generated, and what is refused or mended before it is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod deadlock;
mod deletion;
mod helm;
mod manifests;
mod rbac;
mod workload;
