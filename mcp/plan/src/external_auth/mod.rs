//! The credential of requests to the server behind a proxy, as an object says it: its rules, what it refers to, and what the proxy reads
//! of it.

mod auth_server;
mod blocks;
mod rendered;
mod rules;
mod uses;

pub use blocks::references;
pub use rendered::{credential_in, needs, render};
pub use rules::{endpoint_problem, problems, warnings};
pub use uses::{AUTH_SERVER, as_auth_server, is_auth_server};
