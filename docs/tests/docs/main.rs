//! The book says what is so: its code, commands, flags, tables and generated pages are those of the binaries and crates.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot be read fails the test")]

mod chapters;
mod commands;
mod defaults;
mod issues;
mod readme;
mod reference;
