//! Controllers against a real API server, each under the rights that follow from its definition.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod boat;
mod children;
mod cluster_scoped;
mod conditions;
mod explain;
mod filters;
mod fixture;
mod limits;
mod objects;
mod offline;
mod own_writes;
mod scope;
mod watches;
