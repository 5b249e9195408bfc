//! One kind in several versions, through a real API server: nothing is lost, and nothing bad spreads.

#![allow(clippy::unwrap_used, clippy::panic)]

mod apply;
mod bad;
mod cleanup;
mod fixture;
mod lists;
mod log;
mod outages;
mod people;
mod reviews;
