//! The operator: its plans without any IO, and its binary against real API servers, under the account and rights that it
//! generates, which deploy/rbac.yaml ships.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_stack_arrays,
    reason = "helpers of tests fail as tests do"
)]

mod admission;
mod controllers;
mod golden;
mod manifests;
mod plan;
mod support;
