//! The documents that the operator writes and the runner reads.

mod golden;
mod webhook;
