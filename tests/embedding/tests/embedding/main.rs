//! Crates outside of the workspace: built as their users build them, and run against a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod application;
mod new_operator;
mod plain_controller;
mod signatures;
mod webhook_server;
