//! The example: its webhooks in this process, its binary behind a real API server, and each way to install it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod cluster;
mod embedded;
mod first;
mod in_process;
mod install;
