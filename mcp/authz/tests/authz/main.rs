//! Decisions of policies: a table of vectors, and laws that hold whatever claims and policies are.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod laws;
mod outlooks;
mod parsing;
mod vectors;
