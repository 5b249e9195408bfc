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
mod children_without_owner;
mod config_plan;
mod contract;
mod guards;
mod network;
mod oidc_config;
mod policy;
mod remote_proxy;
mod restart;
mod rollout;
mod rules;
mod side_doors;
mod status;
mod tool_config;
mod virtual_mcp_server;
mod webhook_config;
mod world;
