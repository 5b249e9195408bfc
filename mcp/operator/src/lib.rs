//! The operator of the MCP platform: plans the children of MCPServers and applies them.
//!
//! Every controller is observe → plan → apply, with the kit of [`portcullis::controller`]. [`plan`] is the middle: pure
//! functions from what was observed to what should be, the only place where desired state is derived. [`controllers`]
//! says what is watched and when who is planned. [`webhooks`] tells authors at `kubectl apply` what the plan would tell
//! them in the status.

pub mod controllers;
pub mod plan;
pub mod registration;
pub mod webhooks;
