//! Pairs and authorities: what is issued, what is found wrong with stored ones, and the rotation.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod pairs;
mod rotation;
