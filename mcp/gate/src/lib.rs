//! The request gate: the middleware chain of an MCP proxy and the request webhooks in it.
//!
//! [`Gate::build`] turns the RunConfig's `middleware_configs` into a chain, the first entry outermost, and refuses to
//! start with anything it does not know: a server must never run without the guard its author asked for.
//! [`Gate::wrap`] puts the chain around a transport. Bytes that no webhook changed leave as they came.
//!
//! What the steps learn travels in the request's extensions: [`PeerAddr`] (set by the listener), [`Principal`],
//! [`Parsed`].

mod auth;
mod bodylimit;
mod chain;
mod error;
mod json_only;
mod parser;
mod recovery;
mod webhook;

pub use auth::Principal;
pub use chain::{Gate, GateContext};
pub use error::BuildError;
pub use parser::Parsed;

/// The TCP peer of a request: a request extension that the listener sets and webhooks are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub std::net::SocketAddr);
