//! The documents that the operator writes and the runner reads.

mod authz;
mod golden;
mod webhook;
