//! The invariants of the repository: ARCHITECTURE.md and CONTRIBUTING.md state them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot be read fails the test")]

mod binaries;
mod book;
mod crates;
mod dependencies;
mod metrics;
mod published;
mod shape;
mod sources;
mod words;
