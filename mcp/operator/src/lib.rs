//! The operator of the MCP platform: plans the children of MCPServers and applies them.
//!
//! Every controller is observe → plan → apply. [`cache`] observes: one watch per kind, reduced to what is read.
//! [`plan`] is the middle: pure functions from what was observed to what should be, the only place where desired state
//! is derived. [`apply`] writes what differs and nothing else. [`work`] decides when; [`controllers`] puts them together.
//! [`webhooks`] tells authors at `kubectl apply` what the plan would tell them in the status.

pub mod apply;
pub mod cache;
pub mod controllers;
pub mod plan;
pub mod registration;
pub mod webhooks;
pub mod work;
