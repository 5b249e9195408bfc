//! Services that tests start as processes, and a network between them that fails on demand.
//!
//! [`RedisServer`] is the `redis-server` of the distribution, on loopback. It ends with the process that started it, whichever way that ends.
//! [`Toxic`] relays connections to any TCP server, until it gets a [`Fault`].

mod redis;
mod toxic;

pub use redis::{Monitor, RedisOptions, RedisServer, Tls};
pub use toxic::{Fault, Toxic};
