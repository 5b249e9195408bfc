//! The charts: what helm renders of them, what each value does, and what an API server says to them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test this is the failure")]

mod cluster;
mod hooks;
mod lint;
mod modes;
mod process;
mod service;
mod turns;
mod values;

/// A release of the operator, and its namespace.
const OPERATOR_RELEASE: [&str; 2] = ["mcp-operator", "mcp-operator-system"];
/// A release of the stand-in for Dynamo's webhooks.
const DYNAMO_RELEASE: [&str; 2] = ["platform", "platform-system"];
/// The name that its chart makes of the release's name.
const DYNAMO_NAME: &str = "platform-dynamo-operator";
