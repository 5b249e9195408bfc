//! The operator's binary behind a real API server: what it generates is applied as it is, and it runs with exactly the
//! rights that it asks for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod guide;
mod installation;
mod manifests;
