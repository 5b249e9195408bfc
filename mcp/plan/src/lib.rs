//! The building blocks of the operator's plans, for all kinds of objects: nothing here names a kind, does IO or reads a
//! clock.
//!
//! - [`mod@reference`]: which object names which, and what is known of the Secrets and ConfigMaps among them;
//! - [`config`]: a configuration whose kind does not matter, and the uses that a workload makes of it;
//! - [`authorization`]: who may call what, as a document, a spec or a ConfigMap says it;
//! - [`mod@audit`]: a line about each request;
//! - [`external_auth`]: the credential of requests to the server behind a proxy;
//! - [`rate_limits`]: how often the tools of a workload are called;
//! - [`session_storage`]: the Redis in which replicas keep their sessions, of a spec or the default;
//! - [`mod@webhooks`]: webhooks that are asked about requests;
//! - [`guards`]: the uses that protect a workload, and what stands there;
//! - [`workload`]: the children of a workload, and what its pods say of it;
//! - [`settings`]: what the operator was started with; [`problem`]: a rule that an object breaks; [`digest`]: digests of
//!   documents and of Secret values; [`image`]: references of images; [`oauth`]: names of
//!   headers, scopes and URLs.
//!
//! The traits that a kind implements are the operator's, beside the kinds: Rust lets nobody implement a trait of one
//! crate for a type of another.

pub mod additions;
pub mod audit;
pub mod authorization;
pub mod config;
pub mod digest;
pub mod external_auth;
pub mod guards;
pub mod image;
pub mod oauth;
pub mod problem;
pub mod rate_limits;
pub mod reference;
pub mod session_storage;
pub mod settings;
pub mod webhooks;
pub mod workload;
