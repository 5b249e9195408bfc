//! The command line of an operator's binary: `examples/controller.rs`, `versions_operator.rs` and `cached_operator.rs`, started as
//! processes.

mod caches;
mod cluster;
mod failures;
mod gate;
mod generate;
mod generate_operator;
mod memory_limit;
mod migrate;
pub(crate) mod process;
mod refusal;
mod retries;
mod rights;
mod run;
pub(crate) mod versions;
