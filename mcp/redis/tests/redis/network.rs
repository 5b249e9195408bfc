//! A Redis that is gone, silent, slow, or something else.

use std::time::Duration;

use mcp_redis::{Limit, RateLimits, Redis, RedisError, RedisSessions, SessionOptions};
use mcp_store::{Principal, SessionStore as _};
use portcullis_services::{Fault, RedisOptions, RedisServer, Toxic};

use crate::{DEADLINES, TTL, answers, connect, server};

async fn behind_a_relay() -> (RedisServer, Toxic, Redis) {
    let server = server().await;
    let toxic = Toxic::before(&server.address()).await.unwrap();
    let redis = connect(&toxic.address());
    redis.ping().await.unwrap();
    (server, toxic, redis)
}

#[tokio::test]
async fn all_commands_share_one_connection() {
    let (_server, toxic, redis) = behind_a_relay().await;
    let pings: Vec<_> = (0..200)
        .map(|_| {
            let redis = redis.clone();
            tokio::spawn(async move { redis.ping().await })
        })
        .collect();
    for ping in pings {
        ping.await.unwrap().unwrap();
    }
    assert_eq!(toxic.accepted(), 1);
}

#[tokio::test]
async fn a_redis_that_restarts_between_two_calls_costs_none() {
    let mut server = RedisServer::start(RedisOptions { persistent: true, ..RedisOptions::default() }).await.unwrap();
    let sessions = RedisSessions::new(connect(&server.address()), SessionOptions::new(TTL)).unwrap();
    let alice = crate::sessions::open(&sessions, "a", "alice").await;
    for _ in 0..3 {
        server.kill().await.unwrap();
        server.start_again().await.unwrap();
        assert!(sessions.load("a", &alice).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_redis_that_is_gone_fails_calls_at_once_until_it_is_back() {
    let (mut server, toxic, redis) = behind_a_relay().await;
    server.kill().await.unwrap();
    let error = redis.ping().await.unwrap_err();
    assert!(error.to_string().contains(&toxic.address()), "{error}");
    let attempts = toxic.accepted();
    for _ in 0..1000 {
        redis.ping().await.unwrap_err();
    }
    assert!(toxic.accepted() - attempts < 100, "an attempt has a pause after it: {}", toxic.accepted());
    server.start_again().await.unwrap();
    answers(&redis).await;
}

#[tokio::test]
async fn nobody_listening_is_an_error_with_the_address() {
    let mut server = server().await;
    let redis = connect(&server.address());
    server.kill().await.unwrap();
    let error = redis.ping().await.unwrap_err();
    assert!(matches!(error, RedisError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&server.address()), "{error}");
}

#[tokio::test]
async fn a_silent_connection_is_given_up_for_another() {
    let (_server, toxic, redis) = behind_a_relay().await;
    toxic.set(Fault::Silent);
    let error = redis.ping().await.unwrap_err();
    assert!(matches!(error, RedisError::Timeout { within, .. } if within == DEADLINES.answer), "{error:?}");
    let error = redis.ping().await.unwrap_err();
    assert!(matches!(&error, RedisError::Unreachable { .. }), "the next one is silent at its login: {error:?}");
    toxic.set(Fault::None);
    answers(&redis).await;
}

#[tokio::test]
async fn a_slow_answer_is_waited_for_and_a_late_one_is_not() {
    let (_server, toxic, redis) = behind_a_relay().await;
    toxic.set(Fault::Slow(Duration::from_millis(50)));
    redis.ping().await.unwrap();
    toxic.set(Fault::Slow(Duration::from_mins(1)));
    let error = redis.ping().await.unwrap_err();
    assert_eq!(error.kind(), "timeout", "{error}");
    toxic.set(Fault::None);
    answers(&redis).await;
}

#[tokio::test]
async fn an_answer_in_another_protocol_is_no_session() {
    let (_server, toxic, redis) = behind_a_relay().await;
    let sessions = RedisSessions::new(redis.clone(), SessionOptions::new(TTL)).unwrap();
    let alice = crate::sessions::open(&sessions, "a", "alice").await;
    toxic.set(Fault::Garbage);
    let error = sessions.load("a", &alice).await.unwrap_err();
    assert!(error.to_string().contains(&toxic.address()), "{error}");
    toxic.set(Fault::None);
    answers(&redis).await;
    assert!(sessions.load("a", &alice).await.unwrap().is_some());
}

#[tokio::test]
async fn a_call_pays_once_also_where_its_connection_breaks() {
    let (server, toxic, redis) = behind_a_relay().await;
    let mut limits = RateLimits::new("ns", "server");
    limits.all.shared = Some(Limit::new(10, Duration::from_hours(1)).unwrap());
    let buckets = limits.buckets("echo", "alice");
    redis.consume(&buckets).await.unwrap();
    // The answer is late, and the connection ends while it is waited for.
    toxic.set(Fault::Slow(Duration::from_mins(1)));
    let mut monitor = server.monitor().await.unwrap();
    let (answer, ()) = tokio::join!(redis.consume(&buckets), async {
        while !monitor.commands().await.unwrap().iter().any(|command| command.contains("EVALSHA")) {}
        toxic.cut();
    });
    assert_eq!(answer.unwrap_err().kind(), "broken");
    let tokens = server.cli(&["HGET", "thv:rl:{ns:server}:shared", "tokens"]).await.unwrap();
    assert!(tokens.starts_with("8."), "one token for each of two calls: {tokens}");
}

#[tokio::test]
async fn a_session_is_looked_up_again_where_its_connection_breaks() {
    let (server, toxic, redis) = behind_a_relay().await;
    let sessions = RedisSessions::new(redis, SessionOptions::new(TTL)).unwrap();
    let alice: Principal = crate::sessions::open(&sessions, "a", "alice").await;
    sessions.load("a", &alice).await.unwrap();
    toxic.set(Fault::Slow(Duration::from_mins(1)));
    let mut monitor = server.monitor().await.unwrap();
    let (found, ()) = tokio::join!(sessions.load("a", &alice), async {
        while monitor.commands().await.unwrap().is_empty() {}
        toxic.set(Fault::None);
        toxic.cut();
    });
    assert!(found.unwrap().is_some());
}
