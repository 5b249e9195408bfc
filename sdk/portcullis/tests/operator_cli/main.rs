//! The command line of an operator's binary: `examples/entity_operator.rs`, started as a process.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;
mod failures;
mod generate;
mod process;
mod run;
