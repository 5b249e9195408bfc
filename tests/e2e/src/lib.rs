//! The whole way: a manifest passes the admission gate, a call passes the request gate.
//!
//! The parts that the demo and the end-to-end test share. Everything in it is real: the control plane, the operator's and the runner's binaries, an MCP
//! server that is not ours (the Go SDK's `everything`), and an MCP client made with the official Rust SDK.

pub mod apply;
pub mod certificates;
pub mod challenge;
pub mod client;
pub mod current;
pub mod gate;
pub mod login;
pub mod pod;
pub mod process;
pub mod request_webhook;
pub mod runner;
pub mod stage;
