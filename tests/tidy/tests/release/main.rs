//! Checks of a release, for `make release-check`: they compile the published crates in every form of use.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot be read fails the test")]
#![allow(clippy::print_stdout, reason = "with --nocapture, one sees how far it is")]

mod api;
mod metadata;
mod packages;
