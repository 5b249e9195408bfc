//! Webhooks as their authors use them: in process, and called by a real API server through generated configurations.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod decisions;
mod deletion;
#[allow(dead_code, reason = "the other test binary uses the rest")]
#[path = "../wire/fixture.rs"]
mod fixture;
mod fleet;
mod gate;
mod immutable;
mod issues;
mod kinds;
mod nasty;
mod outages;
mod settings;
mod subresources;
mod versions;
