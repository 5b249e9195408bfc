//! Candidates, an API server, networks and clocks, all simulated: the same state machines that the drivers run.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(clippy::unchecked_time_subtraction, reason = "a test's bound below zero fails the test")]

mod actor;
mod election;
mod races;
mod scopes;
mod world;
