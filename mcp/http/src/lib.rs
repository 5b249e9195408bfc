//! The common HTTP parts of an MCP proxy: one body type, one service type, the answers that a proxy gives itself,
//! reading bodies within limits, and the [`client`] for calls of the proxy's own.
//!
//! ```
//! use http::StatusCode;
//! use mcp_http::json_error;
//! use mcp_wire::{ErrorBody, code};
//!
//! let refusal = json_error(StatusCode::FORBIDDEN, &ErrorBody::new(code::DENIED, "Request denied by policy"));
//! assert_eq!(refusal.headers()["content-type"], "application/json");
//! ```

mod answer;
mod body;
mod budget;
pub mod client;
mod connections;
pub mod file;
pub mod location;
mod read;
mod service;
mod signer;
mod token_file;

pub use answer::{Unauthorized, answer, is_type, json, json_error, text};
pub use body::{Body, BoxError, CollectError, collect, empty, full, is_length_limit};
pub use budget::{Bounds, Budget, Kept, NoRoom, Share};
pub use connections::{Connecting, Connections, Failure, ForbiddenAddress, Silence};
pub use read::{ReadError, TooSlow, read};
pub use service::BoxService;
pub use signer::{Sign, Signer};
pub use token_file::TokenFile;
