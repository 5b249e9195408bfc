//! Candidates, an API server, networks and clocks, all simulated: the same state machines that the drivers run.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests; windows are shown")]
#![allow(clippy::unchecked_time_subtraction, reason = "a test's bound below zero fails the test")]

mod actor;
mod election;
mod installations;
mod races;
mod scopes;
mod world;
