//! `dev`: the examples, served from this machine to a real API server, as real processes.

mod election;
mod failures;
mod fixture;
mod leftovers;
mod policies;
mod process;
mod restricted;
mod session_leases;
mod sessions;
mod signals;
mod tunnel;
