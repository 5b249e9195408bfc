//! The kinds of the API group `toolhive.stacklok.dev`: Rust types, their schemas and the CRDs made of them.
//!
//! The schema is a contract: manifests, stored objects and other tools' clients depend on every path, default, bound
//! and message of it, so `tests/mcp_api/contract/` holds it as data and a test compares both ways. This crate has no
//! client and does no IO; it describes what the API server stores and what the operator reads.
//!
//! Each kind is one set of types, under the version that is stored: [`v1beta1`] or [`v1alpha1`]. A kind that is also
//! served under an older version has the same schema there, so reading it always means reading the stored version.
//! [`names`] holds the strings both gates and users rely on: labels, annotations, condition types.
//!
//! Values that the schema defaults are plain fields and have the default when they are absent; everything else that
//! may be absent is an `Option`. Absent members stay absent when an object is written.
//!
//! ```
//! use mcp_api::v1beta1::{MCPServer, Transport};
//!
//! let server: MCPServer = serde_json::from_value(serde_json::json!({
//!     "apiVersion": "toolhive.stacklok.dev/v1beta1",
//!     "kind": "MCPServer",
//!     "metadata": {"name": "fetch"},
//!     "spec": {"image": "ghcr.io/stackloklabs/gofetch/server:1.0.1"},
//! }))?;
//! assert_eq!(server.spec.transport, Transport::Stdio);
//! assert_eq!(server.spec.proxy_port, 8080);
//! # Ok::<(), serde_json::Error>(())
//! ```
#[macro_use]
mod string_enum;
#[macro_use]
mod absent_spec;
mod crd;
pub mod names;
mod reference;
mod schema;
pub mod v1alpha1;
pub mod v1beta1;

pub use crd::crds;
