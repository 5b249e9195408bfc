//! The exit statuses by which a proxy's process tells the operator more than that it failed.

/// The server in the other pod goes on although its input has ended, and never reads again: its pod is to be replaced.
/// (`EX_PROTOCOL` of sysexits.h.)
pub const SERVER_STAYS: u8 = 76;
