//! Session records of the MCP proxies, and where they are kept.
//!
//! A [`SessionRecord`] is plain data: a proxy that holds nothing else of a session can be replaced by another one that reads the
//! same [`SessionStore`]. What belongs to one process (open streams, subscriptions) stays with the transport.
//!
//! [`MemorySessions`] is the store of a single proxy: bounded in number and in bytes, fair between clients. [`Shares`] bound
//! anything else that a [`Client`] takes and gives back, and in [`Places`] it waits for what it cannot take at once.
//!
//! ```
//! use std::time::Duration;
//! use mcp_store::{Client, Limits, MemorySessions, Principal, SessionRecord, SessionStore as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), mcp_store::StoreError> {
//! let store = MemorySessions::new(Limits::new(Duration::from_hours(2)));
//! let owner = Principal::new("https://issuer.example", "alice");
//! let record = SessionRecord::new("4f6c", owner.clone());
//! store.insert(record, &Client::Principal(owner.clone())).await?;
//! assert!(store.load("4f6c", &owner).await?.is_some());
//! assert!(store.load("4f6c", &Principal::unauthenticated()).await?.is_none(), "somebody else's session");
//! # Ok(())
//! # }
//! ```

mod memory;
mod places;
mod shares;
mod table;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use memory::MemorySessions;
pub use places::{Place, Places};
pub use shares::{Bound, Share, Shares};
pub use table::{Limits, Removed};

/// The owner of a session: `<iss>` NUL `<sub>` of a validated token, or `unauthenticated` (toolhive-0.63 §4.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Box<str>);

impl Principal {
    /// The subject `subject` of `issuer`.
    pub fn new(issuer: &str, subject: &str) -> Self {
        Self(format!("{issuer}\0{subject}").into())
    }

    /// Everybody without an identity.
    pub fn unauthenticated() -> Self {
        Self("unauthenticated".into())
    }

    /// The text by which a store outside of this process knows it: no secret, and nothing to show.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One session as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The id that the client knows.
    pub id: Box<str>,
    /// The only one who may use the session.
    pub principal: Principal,
    /// The MCP server's id for the session, where the server has one of its own.
    pub backend_id: Option<Box<str>>,
    /// The address of the MCP server that opened the session: of several pods, the one that knows it.
    pub backend_address: Option<SocketAddr>,
    /// The body of the client's `initialize`, with which the session can be opened anew.
    pub handshake: Option<Box<str>>,
    /// The path and query at which the MCP server takes the session's messages, where it has said so (HTTP with server-sent events).
    pub messages: Option<Box<str>>,
}

impl SessionRecord {
    /// A record with nothing but its owner.
    pub fn new(id: &str, principal: Principal) -> Self {
        Self { id: id.into(), principal, backend_id: None, backend_address: None, handshake: None, messages: None }
    }

    /// About the memory that the record takes, in bytes: its strings, and the places in a store by which it is found.
    fn weight(&self) -> usize {
        const BOOKKEEPING: usize = 512;
        let length = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let optional = [&self.backend_id, &self.handshake, &self.messages].map(length);
        BOOKKEEPING + self.id.len() + self.principal.0.len() + optional.iter().sum::<usize>()
    }
}

/// The holder that a request, and everything that the proxy keeps of it, counts for: no client takes what all of them share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    /// A caller that has logged in.
    Principal(Principal),
    /// The network that a request comes from, before a login and where there is none: an IPv4 address, or the /64 of an IPv6 address, of which one
    /// host has all addresses.
    Network(IpAddr),
}

/// The store did not answer. Answer 503: the session may exist.
#[derive(Debug, thiserror::Error)]
#[error("session store unavailable: {0}")]
pub struct StoreError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl StoreError {
    /// The store failed with `source`.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(source.into())
    }
}

/// The answer of a store, or the reason why there is none.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Where session records are kept. Every use of a session by its owner renews it; a session that nobody uses expires.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// Adds a session that counts for `client` and returns those that had to go for it. `None`, and nothing changes, where the id is that of a
    /// living session of another principal: of two who insert one id at a time, one gets it (toolhive-0.63 §4.2).
    fn insert<'a>(&'a self, record: SessionRecord, client: &'a Client) -> Reply<'a, Option<Vec<Arc<SessionRecord>>>>;

    /// The session, renewed; `None` when there is none of this id that belongs to `principal`.
    fn load<'a>(&'a self, id: &'a str, principal: &'a Principal) -> Reply<'a, Option<Arc<SessionRecord>>>;

    /// Puts `next` in place of `current`, which has the same id and principal, and returns the record that is there now: `next`, or the one that
    /// another request has put there since `current` was loaded. `None` when the session is gone.
    fn replace<'a>(&'a self, current: &'a SessionRecord, next: SessionRecord) -> Reply<'a, Option<Arc<SessionRecord>>>;

    /// Removes the session and returns whether there was one of this id that belongs to `principal`.
    fn remove<'a>(&'a self, id: &'a str, principal: &'a Principal) -> Reply<'a, bool>;

    /// The time that a session lives without being used.
    fn ttl(&self) -> Duration;

    /// The number of sessions that this process knows of, for its metrics: of a store that replicas share, those that it has opened.
    fn len(&self) -> usize;

    /// Whether it knows of none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
