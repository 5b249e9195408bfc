//! The fuzz targets, as plain functions: a body in, a panic where a promise is broken.
//!
//! The same functions run twice. `tests/smoke.rs` replays the committed seeds and some thousand mutations of them with a
//! fixed start, in seconds, in every test run. `fuzz/run.sh` runs them under libFuzzer, which is led by the coverage of
//! the code, for as long as one likes.

#![allow(clippy::panic, clippy::expect_used, reason = "a broken promise ends the run: that is what is looked for")]

mod certificates;
mod conversion;
mod lease;
mod mutate;
mod nasty;
mod review;
mod versions;

pub use certificates::certificates;
pub use conversion::conversion;
pub use lease::lease;
pub use mutate::Mutator;
pub use nasty::Nasty;
pub use review::review;
