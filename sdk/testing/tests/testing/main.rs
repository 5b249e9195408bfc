//! Tools for tests: reviews and laws in the process, and a real control plane with users and servers around it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod admission;
#[cfg(feature = "control-plane")]
mod cert_manager;
#[cfg(feature = "control-plane")]
mod control_plane;
#[cfg(feature = "control-plane")]
mod controllers;
mod conversion;
#[cfg(feature = "control-plane")]
mod webhook;
