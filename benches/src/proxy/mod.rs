//! Parts of the proxy harnesses: an MCP server, its callers and webhooks, each a process of its own, and the proxies
//! between them.

pub mod backend;
pub mod bodies;
pub mod caller;
pub mod figures;
pub mod http;
pub mod login;
pub mod processes;
pub mod relay;
pub mod remote;
pub mod sse;
pub mod webhooks;
pub mod workload;
