//! Leases: the state machines in a simulation, and the drivers on a real API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
#![allow(clippy::print_stderr, reason = "windows are shown")]
#![allow(clippy::unchecked_time_subtraction, reason = "a test's bound below zero fails the test")]

mod cluster;
mod simulated;
