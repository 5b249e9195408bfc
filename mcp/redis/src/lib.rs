//! Sessions and rate limits that the replicas of an MCP proxy share in Redis, in ToolHive's keys and values: a session that its runner wrote goes on
//! here, and back, and one bucket counts the calls of both.
//!
//! [`Redis`] is one server by its address, over one connection that is made again when it breaks; [`Clients`] has one for each that a document names.
//! [`RedisSessions`] keeps sessions there.
//! [`RateLimits`] decides which buckets a call takes a token from, and [`Redis::consume`] takes one from each of them, or none;
//! [`register`] adds the middleware that asks it.
//!
//! A call costs one command for its session and one for its limits: scripts run by their digest, and their text is sent once to each server. Redis
//! Sentinel and Redis Cluster are not spoken.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use mcp_redis::{Decision, Limit, RateLimits, Redis, RedisConfig, RedisSessions, SessionOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = RedisConfig::new("redis.cache.svc:6379");
//! let redis = Redis::new(config, &Arc::new(rustls::crypto::aws_lc_rs::default_provider()))?;
//! let sessions = RedisSessions::new(redis.clone(), SessionOptions::new(Duration::from_hours(2)))?;
//!
//! let mut limits = RateLimits::new("default", "github");
//! limits.all.shared = Some(Limit::new(10, Duration::from_hours(1))?);
//! let buckets = limits.buckets("create_issue", "alice");
//! if let Decision::Refused(bucket) = redis.consume(&buckets).await? {
//!     println!("try again in {} s", bucket.limit.retry_after());
//! }
//! # Ok(())
//! # }
//! ```

mod clients;
mod config;
mod connection;
mod envelope;
mod error;
mod failures;
mod limits;
mod middleware;
mod sessions;

pub use clients::Clients;
pub use config::{Deadlines, RedisConfig};
pub use connection::Redis;
pub use error::{ConfigError, RedisError};
pub use limits::{Bucket, Decision, Limit, Limits, RateLimits, Scope};
pub use middleware::register;
pub use sessions::{RedisSessions, SessionOptions};
