//! `doctor` against a real API server: an installation that is well, and everything that can go wrong with it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends with its first error")]

mod broken;
mod clinic;
mod process;
mod visits;
mod ward;
mod well;
