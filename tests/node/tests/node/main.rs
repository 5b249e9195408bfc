//! The platform as users of a cluster see it. `make e2e` brings the node up, loads the images and runs these tests.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "in a test this is the failure"
)]

mod audit;
mod authorization;
mod bad_servers;
mod edits;
mod features;
mod idle;
mod login;
mod network;
mod node;
mod not_ready;
mod overlap;
mod proxy_container;
mod replicas;
mod request_gate;
mod restart;
mod rollout;
mod rotation;
mod telemetry;
mod transports;
