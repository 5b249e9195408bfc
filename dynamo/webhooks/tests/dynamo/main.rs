//! The second operator on the SDK: its rules by themselves, its command line, and its binary behind a real API server.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "helpers of tests")]

mod acceptance;
mod clusters;
mod command_line;
mod deletion;
mod guide;
mod restricted;
mod reviews;
mod side_by_side;
mod webhooks_off;
