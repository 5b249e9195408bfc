//! ToolHive's runner and this one, on the same keys: its commands and values were recorded (v0.63.0).

use std::collections::HashSet;
use std::time::Duration;

use mcp_redis::{Decision, Limit, Limits, RateLimits, RedisSessions, SessionOptions};
use mcp_store::{Client, Principal, SessionRecord, SessionStore as _};
use portcullis_services::RedisServer;
use serde_json::Value;

use crate::{TTL, connect, server};

/// The binding in a record, as the principal of a request.
fn owner(record: &Value) -> Principal {
    let (issuer, subject) = record["metadata"]["vmcp.identity.binding"].as_str().unwrap().split_once('\0').unwrap();
    Principal::new(issuer, subject)
}

fn sessions(server: &RedisServer, prefix: &str) -> RedisSessions {
    let options = SessionOptions { key_prefix: prefix.to_owned(), ..SessionOptions::new(TTL) };
    RedisSessions::new(connect(&server.address()), options).unwrap()
}

/// All keys that were recorded: each with its value, and the id that the client knew.
fn recorded() -> Vec<(String, String, String)> {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../recorded/sessions.json")).unwrap();
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for case in &cases {
        let lists = case.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("keys"));
        for entry in lists.flat_map(|(_, list)| list.as_array().unwrap()).filter(|entry| entry.is_object()) {
            let (key, value) = (entry["key"].as_str().unwrap(), entry["value"].as_str().unwrap());
            let id = entry["decoded"]["id"].as_str().unwrap();
            let odd = case["session_id_seen_by_client"].as_str().filter(|seen| seen.starts_with("SESSION"));
            if seen.insert(value.to_owned()) {
                found.push((key.to_owned(), value.to_owned(), odd.unwrap_or(id).to_owned()));
            }
        }
    }
    assert!(found.len() > 10, "{found:?}");
    found
}

#[tokio::test]
async fn a_session_of_toolhive_goes_on_here_and_back() {
    let server = server().await;
    for (key, value, id) in recorded() {
        let prefix = &key[..=key.rfind(':').unwrap()];
        let (store, expected) = (sessions(&server, prefix), serde_json::from_str::<Value>(&value).unwrap());
        let (owner, metadata) = (owner(&expected), &expected["metadata"]);
        server.cli(&["SET", &key, &value]).await.unwrap();

        let record = store.load(&id, &owner).await.unwrap().unwrap_or_else(|| panic!("{value} is not found"));
        assert_eq!(*record.id, *id);
        assert_eq!(record.handshake.as_deref(), metadata["init_body"].as_str());
        assert_eq!(record.backend_id.as_deref(), metadata["backend_sid"].as_str());
        let url = record.backend_address.map(|address| format!("http://{address}"));
        assert_eq!(url.as_deref(), metadata["backend_url"].as_str());
        assert!(store.load(&id, &Principal::unauthenticated()).await.unwrap().is_none());

        // Written here, it is the same but for its times.
        server.cli(&["DEL", &key]).await.unwrap();
        let client = Client::Principal(owner.clone());
        store.insert(SessionRecord::clone(&record), &client).await.unwrap().unwrap();
        let mut written: Value = serde_json::from_str(&server.cli(&["GET", &key]).await.unwrap()).unwrap();
        for time in ["created_at", "updated_at"] {
            assert!(written[time].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{written}");
            written[time] = expected[time].clone();
        }
        assert_eq!(written, expected);

        // One that its server has lost moves on, with the rest as it was.
        let next = SessionRecord { backend_id: Some("anew".into()), ..SessionRecord::clone(&record) };
        assert_eq!(*store.replace(&record, next.clone()).await.unwrap().unwrap(), next);
        assert!(store.remove(&id, &owner).await.unwrap());
    }
    assert_eq!(server.cli(&["DBSIZE"]).await.unwrap(), "0");
}

#[tokio::test]
async fn a_session_whose_server_is_named_can_be_opened_anew() {
    let (server, id) = (server().await, "f50cc2bb-abb5-4eed-8862-2444029b90db");
    let (_, value, _) = recorded().swap_remove(0);
    let value = value.replace("http://127.0.0.1:26611", "https://mcp.example");
    let (store, owner) = (sessions(&server, "x:"), owner(&serde_json::from_str(&value).unwrap()));
    server.cli(&["SET", &format!("x:{id}"), &value]).await.unwrap();
    let record = store.load(id, &owner).await.unwrap().unwrap();
    let next = SessionRecord { backend_id: Some("anew".into()), ..SessionRecord::clone(&record) };
    assert_eq!(*store.replace(&record, next.clone()).await.unwrap().unwrap(), next);
}

fn limits(recorded: &Value) -> RateLimits {
    let limit = |value: &Value| {
        let period = match value["refillPeriod"].as_str()? {
            "1h0m0s" => Duration::from_hours(1),
            "30m0s" => Duration::from_mins(30),
            "1500ms" => Duration::from_millis(1500),
            other => panic!("no test knows {other}"),
        };
        Some(Limit::new(value["maxTokens"].as_u64()?.try_into().ok()?, period).unwrap())
    };
    let both = |value: &Value| Limits { shared: limit(&value["shared"]), per_user: limit(&value["perUser"]) };
    let mut limits =
        RateLimits::new(recorded["namespace"].as_str().unwrap(), recorded["server_name"].as_str().unwrap());
    limits.all = both(&recorded["config"]);
    let tools = recorded["config"]["tools"].as_array().unwrap();
    limits.tools = tools.iter().map(|tool| (tool["name"].as_str().unwrap().to_owned(), both(tool))).collect();
    limits
}

/// Sets the buckets as they were before a call, as long ago as they were then.
async fn set_buckets(server: &RedisServer, before: &Value, called_at: i64) {
    server.cli(&["FLUSHDB"]).await.unwrap();
    for bucket in before.as_array().into_iter().flatten() {
        let (key, fields) = (bucket["key"].as_str().unwrap(), &bucket["fields"]);
        let age = called_at - fields["last_refill"].as_str().unwrap().parse::<i64>().unwrap();
        let script = "local t = redis.call('TIME') \
                      return redis.call('HSET', KEYS[1], 'tokens', ARGV[1], 'last_refill', \
                      string.format('%.0f', t[1] * 1000000 + t[2] - ARGV[2]))";
        let tokens = fields["tokens"].as_str().unwrap();
        server.cli(&["EVAL", script, "1", key, tokens, &age.to_string()]).await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_toolhive_counted_is_answered_as_there() {
    let (server, recorded) = (server().await, include_str!("../recorded/ratelimit.json"));
    let recorded: Value = serde_json::from_str(recorded).unwrap();
    let (limits, redis) = (limits(&recorded), connect(&server.address()));
    let (mut before, mut counted) = (&Value::Null, 0);
    for call in recorded["calls"].as_array().unwrap() {
        let name = call["call"].as_str().unwrap();
        let Some(ran) = call["commands"].as_array().unwrap().last().filter(|_| !name.starts_with("server")) else {
            continue;
        };
        let writes = ran["runs"].as_array().unwrap().iter().filter(|command| command[0] == "HSET");
        let writes: Vec<_> = writes.map(|command| (command[1].as_str().unwrap(), &command[3], &command[5])).collect();
        set_buckets(&server, before, writes[0].2.as_str().unwrap().parse().unwrap()).await;
        before = &call["keys"];

        let user = if name.contains("bob") { "bob|x:y" } else { "alice" };
        let tool = ["fail", "rm"].into_iter().find(|tool| name.contains(&format!("calls {tool}"))).unwrap_or("echo");
        let buckets = limits.buckets(tool, user);
        let decision = redis.consume(&buckets).await.unwrap();
        match (decision, call["status"].as_u64()) {
            (Decision::Allowed, Some(200)) => {}
            (Decision::Refused(bucket), Some(429)) => {
                assert_eq!(bucket.limit.retry_after().to_string(), call["headers"]["retry-after"], "{name}");
            }
            (decision, status) => panic!("{name}: {decision:?}, and {status:?} there"),
        }
        for (key, tokens, _) in writes {
            let kept: f64 = server.cli(&["HGET", key, "tokens"]).await.unwrap().parse().unwrap();
            let there: f64 = tokens.as_str().unwrap().parse().unwrap();
            // The time that the test takes brings no whole token, except where one comes in 1.5 s.
            assert!(
                kept - there > -0.001 && (kept - there < 1.0 || tool == "rm"),
                "{name}: {key} has {kept}, {there} there"
            );
            let expiry: i64 = server.cli(&["TTL", key]).await.unwrap().parse().unwrap();
            assert!((1..=7200).contains(&expiry), "{key} lives for {expiry} s");
        }
        counted += 1;
    }
    assert_eq!(counted, 9);
}
