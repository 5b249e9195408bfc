//! What the protocol's messages, headers and events mean, from outside of the crate.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod headers;
mod lists;
mod messages;
mod properties;
