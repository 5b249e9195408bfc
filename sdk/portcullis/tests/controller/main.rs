//! Controllers of the kit against a real API server, each under the rights that the kit's documentation names.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod boat;
mod children;
mod explain;
mod feeds;
mod fixture;
mod limits;
mod objects;
mod offline;
mod scope;
