//! One kind in several versions, through a real API server: nothing is lost, and nothing bad spreads.

#[macro_use]
mod people;

mod applies;
mod apply;
mod bad;
mod cleanup;
mod fixture;
pub(crate) mod kinds;
mod lists;
mod outages;
mod reviews;
mod room;
mod stash;
