//! A Redis that answers, and refuses.

use std::time::Duration;

use mcp_redis::{Decision, Limit, RateLimits, RedisSessions, SessionOptions};
use mcp_store::{Client, SessionRecord, SessionStore as _};
use portcullis_services::Toxic;

use crate::sessions::open;
use crate::{TTL, answers, connect, server};

#[tokio::test]
async fn a_redis_that_refuses_says_why_and_is_used_again() {
    for (refuse, obey, code) in [
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"),
        ("ACL SETUSER default -set -evalsha", "ACL SETUSER default +set +evalsha", "NOPERM"),
    ] {
        let server = server().await;
        let redis = connect(&server.address());
        let sessions = RedisSessions::new(redis.clone(), SessionOptions::new(TTL)).unwrap();
        let alice = open(&sessions, "a", "alice").await;
        let mut limits = RateLimits::new("ns", "server");
        limits.all.shared = Some(Limit::new(10, Duration::from_hours(1)).unwrap());
        let buckets = limits.buckets("echo", "alice");
        redis.consume(&buckets).await.unwrap();
        let run = async |line: &str| server.cli(&line.split(' ').collect::<Vec<_>>()).await.unwrap();
        run(refuse).await;
        for _ in 0..2 {
            let client = Client::Principal(alice.clone());
            let new = sessions.insert(SessionRecord::new("b", alice.clone()), &client).await.unwrap_err().to_string();
            let call = redis.consume(&buckets).await.unwrap_err().to_string();
            assert!([&new, &call].iter().all(|error| error.contains(code)), "{new} {call}");
        }
        run(obey).await;
        answers(&redis).await;
        assert!(sessions.load("a", &alice).await.unwrap().is_some(), "{code}");
        assert_eq!(redis.consume(&buckets).await.unwrap(), Decision::Allowed, "{code}");
        let tokens = run("HGET thv:rl:{ns:server}:shared tokens").await;
        assert!(tokens.starts_with("8."), "{code}: what was refused took no token: {tokens}");
    }
}

#[tokio::test]
async fn a_replica_without_its_primary_is_left() {
    let (old, new) = (server().await, server().await);
    let toxic = Toxic::before(&old.address()).await.unwrap();
    let sessions = RedisSessions::new(connect(&toxic.address()), SessionOptions::new(TTL)).unwrap();
    let alice = open(&sessions, "a", "alice").await;
    for command in [&["CONFIG", "SET", "replica-serve-stale-data", "no"], &["REPLICAOF", "127.0.0.1", "1"][..]] {
        old.cli(command).await.unwrap();
    }
    let successor = RedisSessions::new(connect(&new.address()), SessionOptions::new(TTL)).unwrap();
    open(&successor, "a", "alice").await;
    toxic.lead_to(&new.address());
    let error = sessions.load("a", &alice).await.unwrap_err().to_string();
    assert!(error.contains("MASTERDOWN"), "{error}");
    assert!(sessions.load("a", &alice).await.unwrap().is_some(), "the connection to the old one is given up");
}
