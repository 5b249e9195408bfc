//! Certificates of the real cert-manager: issued, injected, renewed, while the API server calls.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[allow(dead_code, reason = "the tests of external certificates use the rest")]
#[path = "../external/fixture.rs"]
mod fixture;
#[path = "../external/load.rs"]
mod load;
mod renewal;
