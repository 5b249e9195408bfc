//! The documents that the operator writes and the runner reads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy's own exception ends at functions marked as tests")]

mod authz;
mod golden;
mod pages;
mod unknown;
mod webhook;
