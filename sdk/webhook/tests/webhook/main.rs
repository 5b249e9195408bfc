//! Webhooks and conversions: in process, on the wire, and called by a real API server that all of these tests share.
//!
//! CRDs of `conversion` have a group for each test, and the webhooks of the others are for the namespace of one test, so
//! that none is in another's way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod client;
mod conversion;
mod fixture;
mod log;
mod overload;
mod webhooks;
mod wire;
