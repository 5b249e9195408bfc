//! The listener and its clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy's own exception ends at functions marked as tests")]

mod clients;
