//! Sessions that two replicas share.

use mcp_redis::{RedisSessions, SessionOptions};
use mcp_store::{Client, Limits, MemorySessions, Principal, SessionRecord, SessionStore};
use portcullis_services::RedisServer;

use crate::{TTL, connect, replica, server};

fn principal(subject: &str) -> Principal {
    Principal::new("https://issuer.example", subject)
}

/// Opens a session of `subject` and returns its owner.
pub(crate) async fn open(store: &dyn SessionStore, id: &str, subject: &str) -> Principal {
    let owner = principal(subject);
    insert(store, SessionRecord::new(id, owner.clone())).await.expect("the id is free");
    owner
}

async fn insert(store: &dyn SessionStore, record: SessionRecord) -> Option<usize> {
    let client = Client::Principal(record.principal.clone());
    store.insert(record, &client).await.unwrap().map(|gone| gone.len())
}

fn at(id: &str, backend: &str) -> SessionRecord {
    SessionRecord { backend_id: Some(backend.into()), ..SessionRecord::new(id, principal("alice")) }
}

/// The contract of every store, of one process or of two.
async fn keeps_its_contract(one: &dyn SessionStore, two: &dyn SessionStore) {
    let (alice, bob) = (open(one, "a", "alice").await, principal("bob"));
    assert_eq!(*two.load("a", &alice).await.unwrap().unwrap(), SessionRecord::new("a", alice.clone()));
    assert!(two.load("a", &bob).await.unwrap().is_none());
    assert!(two.load("unknown", &alice).await.unwrap().is_none());
    assert_eq!(insert(two, SessionRecord::new("a", bob.clone())).await, None, "the id is somebody else's");
    assert!(!two.remove("a", &bob).await.unwrap());

    // Two requests find that the server has lost the session.
    let current = SessionRecord::new("a", alice.clone());
    let kept = one.replace(&current, at("a", "first")).await.unwrap().unwrap();
    assert_eq!(kept.backend_id.as_deref(), Some("first"));
    let kept = two.replace(&current, at("a", "second")).await.unwrap().unwrap();
    assert_eq!(*kept, at("a", "first"), "the second one goes on with the first one's");
    let stolen = SessionRecord { principal: bob, ..at("a", "third") };
    assert!(two.replace(&at("a", "first"), stolen).await.unwrap().is_none());
    assert_eq!(*two.load("a", &alice).await.unwrap().unwrap(), at("a", "first"));

    // A server may give out an id again.
    assert!(insert(two, SessionRecord::new("a", alice.clone())).await.is_some());
    assert_eq!(one.load("a", &alice).await.unwrap().unwrap().backend_id, None);

    assert!(two.remove("a", &alice).await.unwrap());
    assert!(one.load("a", &alice).await.unwrap().is_none(), "it has ended everywhere");
    assert!(!one.remove("a", &alice).await.unwrap());
    assert!(one.replace(&current, at("a", "late")).await.unwrap().is_none());
    assert_eq!((one.len(), two.len()), (0, 0));
}

#[tokio::test]
async fn two_replicas_on_redis_do_as_one_in_memory() {
    let memory = MemorySessions::new(Limits::new(TTL));
    keeps_its_contract(&memory, &memory).await;
    let server = server().await;
    keeps_its_contract(&replica(&server), &replica(&server)).await;
    assert_eq!(server.cli(&["DBSIZE"]).await.unwrap(), "0");
}

#[tokio::test]
async fn of_two_principals_who_insert_one_id_one_gets_it() {
    let server = server().await;
    let (one, two) = (replica(&server), replica(&server));
    for round in 0..50 {
        let id = format!("session-{round}");
        let record = |subject| SessionRecord::new(&id, principal(subject));
        let both = tokio::join!(insert(&one, record("alice")), insert(&two, record("bob")));
        assert!(both.0.is_some() != both.1.is_some(), "{both:?}");
    }
}

async fn pttl(server: &RedisServer, key: &str) -> i64 {
    server.cli(&["PTTL", key]).await.unwrap().parse().unwrap()
}

#[tokio::test]
async fn use_by_the_owner_renews_a_session_and_nothing_else_does() {
    let server = server().await;
    let sessions = replica(&server);
    let id = "f50cc2bb-abb5-4eed-8862-2444029b90db";
    let (alice, key) = (open(&sessions, id, "alice").await, format!("thv:proxy:session:{id}"));
    let (hour, ttl) = (3_600_000, 7_200_000);
    assert!((hour..=ttl).contains(&pttl(&server, &key).await));

    server.cli(&["PEXPIRE", &key, &hour.to_string()]).await.unwrap();
    assert!(sessions.load(id, &principal("bob")).await.unwrap().is_none());
    assert!(!sessions.remove(id, &principal("bob")).await.unwrap());
    assert!(pttl(&server, &key).await <= hour);
    sessions.load(id, &alice).await.unwrap().unwrap();
    assert!(pttl(&server, &key).await > hour);

    server.cli(&["PEXPIRE", &key, &hour.to_string()]).await.unwrap();
    sessions.replace(&SessionRecord::new(id, alice.clone()), at(id, "new")).await.unwrap().unwrap();
    assert!(pttl(&server, &key).await > hour);

    server.cli(&["PEXPIRE", &key, "0"]).await.unwrap();
    assert!(sessions.load(id, &alice).await.unwrap().is_none(), "it has expired");
}

#[tokio::test]
async fn a_use_of_a_session_is_one_command() {
    let server = server().await;
    let sessions = replica(&server);
    let alice = open(&sessions, "a", "alice").await;
    sessions.load("a", &alice).await.unwrap();
    let mut monitor = server.monitor().await.unwrap();
    for _ in 0..10 {
        sessions.load("a", &alice).await.unwrap().unwrap();
    }
    let commands = monitor.commands().await.unwrap();
    assert_eq!(commands.len(), 10, "{commands:#?}");
    assert!(commands.iter().all(|command| command.starts_with(r#""EVALSHA""#)), "{commands:#?}");
    open(&sessions, "b", "alice").await;
    let commands = monitor.commands().await.unwrap();
    assert!(commands.len() == 1 && commands[0].starts_with(r#""SET""#), "{commands:#?}");
}

#[tokio::test]
async fn a_redis_that_has_forgotten_the_scripts_is_told_them_again() {
    let server = server().await;
    let sessions = replica(&server);
    let alice = open(&sessions, "a", "alice").await;
    for _ in 0..2 {
        assert!(sessions.load("a", &alice).await.unwrap().is_some());
        server.cli(&["SCRIPT", "FLUSH"]).await.unwrap();
    }
    assert!(sessions.remove("a", &alice).await.unwrap());
}

#[tokio::test]
async fn a_value_that_is_no_record_is_nobodys_session() {
    let server = server().await;
    let sessions = replica(&server);
    let (id, alice) = ("f50cc2bb-abb5-4eed-8862-2444029b90db", principal("alice"));
    let key = format!("thv:proxy:session:{id}");
    let bound = r#""metadata":{"vmcp.identity.binding":"https://issuer.example\u0000alice"}"#;
    for value in [
        "",
        "garbage",
        "7",
        "[]",
        "{}",
        r#"{"metadata":7}"#,
        r#"{"metadata":{}}"#,
        r#"{"metadata":{"vmcp.identity.binding":""}}"#,
        &format!(r#"{{"id":7,"type":"mcp",{bound}}}"#),
    ] {
        server.cli(&["SET", &key, value]).await.unwrap();
        assert!(sessions.load(id, &alice).await.unwrap().is_none(), "{value}");
    }
    server.cli(&["DEL", &key]).await.unwrap();
    server.cli(&["LPUSH", &key, "value"]).await.unwrap();
    let error = sessions.load(id, &alice).await.unwrap_err().to_string();
    assert!(error.contains("WRONGTYPE"), "{error}");
}

#[tokio::test]
async fn a_client_that_opens_sessions_without_end_loses_its_own() {
    let server = server().await;
    let options = SessionOptions { max_sessions: 10, ..SessionOptions::new(TTL) };
    let sessions = RedisSessions::new(connect(&server.address()), options).unwrap();
    let quiet = open(&sessions, "quiet", "quiet").await;
    for n in 0..50 {
        open(&sessions, &format!("loud{n}"), "loud").await;
    }
    assert_eq!((sessions.len(), server.cli(&["DBSIZE"]).await.unwrap().as_str()), (10, "10"));
    let other = replica(&server);
    assert!(other.load("quiet", &quiet).await.unwrap().is_some());
    assert!(other.load("loud49", &principal("loud")).await.unwrap().is_some());
    assert!(other.load("loud0", &principal("loud")).await.unwrap().is_none());
}
