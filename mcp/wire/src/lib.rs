//! JSON-RPC envelopes on raw bytes, MCP revisions and headers, SSE frames. No IO, no clock.
//!
//! A proxy must forward what it received and still know what it is: this crate reads just the envelope of a message,
//! leaves `params`, `result` and `error` as the slices they are, and refuses what two parsers could read differently.
//!
//! ```
//! use mcp_wire::{ErrorBody, Kind, Message, Revision, classify};
//!
//! let body = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
//! let message = Message::parse_strict(body)?;
//! assert_eq!(message.kind(), Kind::Request);
//! assert_eq!(message.target()?.as_deref(), Some("echo"));
//! assert_eq!(classify(None, &message), Ok(Revision::Legacy));
//!
//! let refusal = ErrorBody::new(403, "Request denied by policy").id(message.id());
//! assert_eq!(refusal.encode(), br#"{"jsonrpc":"2.0","id":7,"error":{"code":403,"message":"Request denied by policy"}}"#);
//! # Ok::<(), mcp_wire::MessageError>(())
//! ```

mod compact;
mod error_body;
mod guard;
pub mod headers;
mod line_breaks;
mod list;
mod message;
mod methods;
mod owned;
mod revision;
mod splice;
pub mod sse;
mod tool_headers;

pub use compact::compact;
pub use error_body::{ErrorBody, code};
pub use guard::{Ambiguity, MAX_DEPTH, check_structure, same_name};
pub use line_breaks::escape_line_breaks;
pub use list::{Entry, List, ListKind};
pub use message::{Id, Kind, Members, Message, MessageError, is_batch};
pub use methods::is_method;
pub use owned::OwnedMessage;
pub use revision::{LEGACY_VERSION, MODERN_VERSION, Revision, RevisionError, classify};
pub use splice::splice;
pub use tool_headers::ToolHeaders;
