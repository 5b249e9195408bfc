//! The kinds of the API: what the types make of objects, and what an API server does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod contract;
mod decode;
