//! What users of a cluster see. `make e2e` brings the node up, loads the images and runs these.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "in a test this is the failure")]

mod login;
mod node;
mod request_gate;
mod rollout;
mod rotation;
