//! Candidates, an API server, networks and clocks, all simulated: the same state machines that the drivers run.

mod actor;
mod election;
mod races;
mod scopes;
mod world;
