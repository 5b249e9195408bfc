//! What is asked at a release alone, by `make release-check`: it compiles the published crates in every form of use.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot be read fails the test")]
#![allow(clippy::print_stdout, reason = "with --nocapture, one sees how far it is")]

mod api;
mod metadata;
mod packages;
