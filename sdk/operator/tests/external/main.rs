//! Certificates that somebody else makes: what is checked, what is told, what goes on being served. The API server calls
//! all the while.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod damage;
mod fixture;
mod load;
mod operator;
#[allow(dead_code, reason = "the tests of the commands use the rest")]
#[path = "../operator_cli/process.rs"]
mod process;
mod published;
mod replacement;
