//! The proxy beside one MCP server: reads its RunConfig, builds the request gate it asks for, listens, drains.
//!
//! Its other command explains who may call which tool, and serves nobody.
//!
//! The binary is a thin shell over [`run`]. What it serves outside of the gate: `/health`, `/readyz`, `/metrics` and
//! `/.well-known/`; everything else passes the middleware chain and then the transport.

mod app;
mod backend;
mod check_login;
mod clients;
mod config;
mod diagnostics;
mod document;
mod error;
mod explain;
mod health;
mod metrics;
mod options;
mod pod;
mod record;
mod registry;
mod reports;
mod run;
mod shared;
mod text;
mod upload;

pub use error::{InputError, RunError};
pub use options::{Environment, Options};
pub use pod::prepare_environment;
pub use run::run;
