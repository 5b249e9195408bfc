//! The webhook server as a peer on the wire sees it: raw sockets, real TLS, and peers that do not behave.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod client;
mod fixture;
mod http;
mod lifecycle;
mod metrics;
mod shed;
mod slow;
