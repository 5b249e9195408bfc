//! Rate limits that two replicas share.

use std::time::Duration;

use mcp_redis::{Decision, Limit, Limits, RateLimits, Scope};

use crate::{connect, server};

fn hourly(tokens: u32) -> Limit {
    Limit::new(tokens, Duration::from_hours(1)).unwrap()
}

#[tokio::test]
async fn ten_tokens_over_two_replicas_are_ten_of_a_hundred_calls() {
    let server = server().await;
    let replicas = [connect(&server.address()), connect(&server.address())];
    let mut limits = RateLimits::new("ns", "server");
    limits.all = Limits { shared: Some(hourly(10)), per_user: Some(hourly(50)) };
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let (redis, limits) = (replicas[n % 2].clone(), limits.clone());
            tokio::spawn(async move {
                let buckets = limits.buckets("echo", "alice");
                redis.consume(&buckets).await.unwrap() == Decision::Allowed
            })
        })
        .collect();
    let mut allowed = 0;
    for call in calls {
        allowed += usize::from(call.await.unwrap());
    }
    assert_eq!(allowed, 10);
    let left = server.cli(&["HGET", "thv:rl:{ns:server}:user:alice", "tokens"]).await.unwrap();
    assert!(left.starts_with("40"), "the calls that were refused took none: {left}");
}

#[tokio::test]
async fn a_refusal_names_the_first_bucket_without_a_token() {
    let server = server().await;
    let redis = connect(&server.address());
    let mut limits = RateLimits::new("ns", "server");
    limits.all = Limits { shared: Some(hourly(5)), per_user: None };
    limits.tools.insert("echo".to_owned(), Limits { shared: None, per_user: Some(hourly(1)) });
    let buckets = limits.buckets("echo", "alice");
    assert_eq!(redis.consume(&buckets).await.unwrap(), Decision::Allowed);
    let Decision::Refused(bucket) = redis.consume(&buckets).await.unwrap() else { panic!("it is allowed") };
    assert_eq!((bucket.scope, bucket.of_tool, bucket.limit.retry_after()), (Scope::PerUser, true, 3600));
    let others = [limits.buckets("echo", "bob"), limits.buckets("other", "alice")];
    for buckets in &others {
        assert_eq!(redis.consume(buckets).await.unwrap(), Decision::Allowed);
    }
}

#[tokio::test]
async fn a_call_is_one_command_and_one_without_buckets_is_none() {
    let server = server().await;
    let redis = connect(&server.address());
    let mut limits = RateLimits::new("ns", "server");
    limits.all = Limits { shared: Some(hourly(100)), per_user: Some(hourly(100)) };
    let buckets = limits.buckets("echo", "alice");
    redis.consume(&buckets).await.unwrap();
    let mut monitor = server.monitor().await.unwrap();
    for _ in 0..10 {
        redis.consume(&buckets).await.unwrap();
        redis.consume(&[]).await.unwrap();
    }
    let commands = monitor.commands().await.unwrap();
    assert_eq!(commands.len(), 10, "{commands:#?}");
    assert!(commands.iter().all(|command| command.starts_with(r#""EVALSHA""#)), "{commands:#?}");
}

/// With rates of six decimals, as ToolHive prints them, this bucket would stay empty for ever.
#[tokio::test]
async fn a_bucket_of_one_token_in_a_month_refills() {
    let server = server().await;
    let redis = connect(&server.address());
    let mut limits = RateLimits::new("ns", "server");
    limits.all.shared = Some(Limit::new(1, Duration::from_hours(24 * 30)).unwrap());
    let buckets = limits.buckets("echo", "alice");
    assert_eq!(redis.consume(&buckets).await.unwrap(), Decision::Allowed);
    assert_ne!(redis.consume(&buckets).await.unwrap(), Decision::Allowed);
    let month = (30_i64 * 24 * 3600 * 1_000_000).to_string();
    let key = "thv:rl:{ns:server}:shared";
    server.cli(&["HINCRBY", key, "last_refill", &format!("-{month}")]).await.unwrap();
    assert_eq!(redis.consume(&buckets).await.unwrap(), Decision::Allowed);
}
