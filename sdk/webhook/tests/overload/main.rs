//! The server under more than it can take: its own process, real TLS, peers that do not behave, and the API server that
//! must be answered all the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[allow(dead_code, reason = "another test binary uses the rest")]
#[path = "../wire/client.rs"]
mod client;
#[allow(dead_code, reason = "other test binaries use the rest")]
#[path = "../wire/fixture.rs"]
mod fixture;
mod gate;
mod limits;
mod memory;
mod peers;
mod process;
mod retry;
