//! Sessions and rate limits in the real Redis, in reach and out of it.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod connection;
mod limits;
mod middleware;
mod model;
mod network;
mod recorded;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use mcp_redis::{Deadlines, Redis, RedisConfig, RedisSessions, SessionOptions};
use portcullis_services::{RedisOptions, RedisServer};

const TTL: Duration = Duration::from_hours(2);

/// Limits that are short for what a test lets go wrong, and long for a Redis that answers.
const DEADLINES: Deadlines =
    Deadlines { connect: Duration::from_secs(2), answer: Duration::from_secs(2), pause: Duration::from_millis(100) };

async fn server() -> RedisServer {
    RedisServer::start(RedisOptions::default()).await.unwrap()
}

fn connect_with(config: RedisConfig) -> Redis {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Redis::new(RedisConfig { deadlines: DEADLINES, ..config }, &provider).unwrap()
}

fn connect(address: &str) -> Redis {
    connect_with(RedisConfig::new(address))
}

/// One replica's view of the sessions in `server`.
fn replica(server: &RedisServer) -> RedisSessions {
    RedisSessions::new(connect(&server.address()), SessionOptions::new(TTL)).unwrap()
}

/// Pings until Redis answers.
async fn answers(redis: &Redis) {
    let answered = async {
        while redis.ping().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), answered).await.expect("Redis answers again");
}
