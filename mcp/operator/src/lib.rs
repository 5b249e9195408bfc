//! The operator of the MCP platform: plans the children of MCPServers and applies them.
//!
//! Every controller is observe → plan → apply. [`plan`] is the middle: pure functions from what was observed to what
//! should be. It is the only place where desired state is derived.

pub mod plan;
