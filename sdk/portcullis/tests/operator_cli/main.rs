//! The command line of an operator's binary: `examples/controller.rs` and `examples/versions_operator.rs`, started as
//! processes.

#![allow(clippy::unwrap_used, clippy::panic)]

mod accounts;
mod client_ca;
mod cluster;
mod failures;
mod generate;
mod generate_helm;
mod generate_operator;
mod migrate;
mod process;
mod refusal;
mod run;
mod versions;
