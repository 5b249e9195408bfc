//! Operators as real processes against real API servers: commands, certificates, policies, sessions and scopes.
//!
//! Most tests share one control plane, so each has namespaces and a release of its own, or a selector on its webhooks.
//! Two modules need more: `scopes` has the control plane with controllers, which it shares with `dev`, whose sessions know
//! another kind; `rotation` puts load on its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test ends with its first error"
)]

mod cert_manager;
mod certs;
mod dev;
mod examples;
mod external;
mod operator_cli;
mod policies;
mod rotation;
mod scopes;

use std::time::Duration;

/// Nothing in these tests takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
