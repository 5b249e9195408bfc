//! `dev`: the examples, served from this machine to a real API server, as real processes.

mod failures;
mod fixture;
mod leftovers;
mod process;
mod sessions;
mod signals;
mod tunnel;
