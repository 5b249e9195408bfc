//! The plans' promises, one module per concern. No IO: every test builds inputs and looks at the plan.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_stack_arrays,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../support/pem.rs"]
mod pem;

mod children;
mod guards;
mod rollout;
mod rules;
mod status;
mod webhook_config;
mod world;
