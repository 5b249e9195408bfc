//! The charts: what helm renders of them, what each value does, and what an API server says to them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test this is the failure")]

mod cluster;
mod dynamo;
mod generated;
mod lint;
mod values;
