//! Two proxies before one server, which share their sessions in a real Redis.

use std::ffi::OsString;

use http::Method;
use portcullis_services::{RedisOptions, RedisServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::login::no_session;
use crate::recovery::opened;
use crate::sse;
use crate::support::{Answer, INITIALIZE, Issuer, Recorder, Runner, SdkClient, Server, Signer, signal, within};

pub(crate) const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}"#;
const DONE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

pub(crate) async fn redis() -> RedisServer {
    RedisServer::start(RedisOptions::default()).await.unwrap()
}

/// The members of a document whose sessions are in the Redis at `address`.
pub(crate) fn in_redis(address: &str) -> Value {
    json!({"scaling_config": {"session_redis": {"address": address}}})
}

/// Two proxies before the server at `backend`, with sessions in the Redis at `address`.
pub(crate) async fn replicas(backend: &str, address: &str) -> [Runner; 2] {
    let members = in_redis(address);
    let replicas = [Runner::http(backend, &members).await, Runner::http(backend, &members).await];
    for replica in &replicas {
        replica.ready().await;
    }
    replicas
}

/// Calls a tool in a session.
pub(crate) async fn call(replica: &Runner, session: &str) -> Answer {
    replica.post(&[("mcp-session-id", session)], CALL).await
}

async fn greets(replica: &Runner, session: &str) {
    let answer = call(replica, session).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.message()["result"]["content"][0]["text"], "Hi Ada");
}

#[tokio::test]
async fn each_replica_continues_a_session_and_the_end_at_one_is_the_end_at_all() {
    let (server, redis) = (Server::go().await, redis().await);
    let replicas = replicas(&server.url(), &redis.address()).await;
    for opener in [0, 1] {
        let session = replicas[opener].session().await;
        for n in 0..100 {
            greets(&replicas[n % 2], &session).await;
        }
        let end = replicas[1 - opener].request(Method::DELETE, "/mcp", &[("mcp-session-id", &session)], "").await;
        assert!(end.status < 300, "{end:?}");
        for replica in &replicas {
            no_session("it is over", &call(replica, &session).await, Some(1));
        }
    }
    assert_eq!(redis.cli(&["DBSIZE"]).await.unwrap(), "0");
}

#[tokio::test]
async fn a_replica_that_is_killed_fails_the_calls_under_way_there_alone() {
    for killed in [0, 1] {
        let (mut backend, redis) = (Recorder::start().await, redis().await);
        let replicas = replicas(&backend.url(), &redis.address()).await;
        opened(&mut backend, &replicas[0]).await;
        let mut connection = TcpStream::connect(replicas[killed].address).await.unwrap();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nmcp-session-id: first\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{CALL}",
            replicas[killed].address,
            CALL.len()
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        let _under_way = backend.next().await;
        signal("KILL", replicas[killed].pid());
        let mut answer = Vec::new();
        let broken = within("the killed proxy's connection to end", connection.read_to_end(&mut answer)).await;
        assert!(broken.is_err() || answer.is_empty(), "{:?}", String::from_utf8_lossy(&answer));
        for _ in 0..20 {
            let (answer, ()) = tokio::join!(call(&replicas[1 - killed], "first"), async {
                let request = backend.next().await;
                assert_eq!(request.header("mcp-session-id"), Some("first"));
                request.json("200 OK", "", DONE).await;
            });
            assert_eq!((answer.status, &*answer.body), (200, DONE));
        }
    }
}

#[tokio::test]
async fn a_session_is_its_owners_at_each_replica() {
    let signer = Signer::ec("a");
    let (issuer, server, redis) = (Issuer::start(vec![signer.clone()]).await, Server::go().await, redis().await);
    let mut members = in_redis(&redis.address());
    members["oidc_config"] = issuer.login(&json!({}));
    let flags = ["--backend", &server.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(OsString::from);
    let start = || Runner::start("streamable-http", &members, &flags, &[]);
    let replicas = [start().await, start().await];
    let token = |subject: &str| format!("Bearer {}", signer.sign("ES256", &issuer.claims(subject)));
    let (alice, bob) = (token("alice"), token("bob"));
    let opened = replicas[0].post(&[("authorization", &alice)], INITIALIZE).await;
    let session = opened.header("mcp-session-id").unwrap_or_else(|| panic!("{opened:?}"));
    let of = |caller| [("authorization", caller), ("mcp-session-id", session), ("content-type", "application/json")];
    for replica in &replicas {
        for (method, body, id) in [(Method::POST, CALL, Some(1)), (Method::GET, "", None), (Method::DELETE, "", None)] {
            let answer = replica.request(method.clone(), "/mcp", &of(&bob), body).await;
            no_session(&format!("{method} of somebody else"), &answer, id);
        }
        assert_eq!(replica.post(&of(&alice)[..2], CALL).await.status, 200);
    }
}

#[tokio::test]
async fn a_call_asks_redis_once_for_its_session() {
    let (server, redis) = (Server::go().await, redis().await);
    let replicas = replicas(&server.url(), &redis.address()).await;
    let session = replicas[0].session().await;
    for replica in &replicas {
        greets(replica, &session).await;
    }
    let mut monitor = redis.monitor().await.unwrap();
    for n in 0..20 {
        greets(&replicas[n % 2], &session).await;
    }
    let commands = monitor.commands().await.unwrap();
    assert_eq!(commands.len(), 20, "{commands:#?}");
    assert!(commands.iter().all(|command| command.starts_with("\"EVALSHA\"")));
}

#[tokio::test]
async fn a_session_that_is_opened_anew_by_one_replica_is_so_for_all() {
    let (mut server, redis) = (Server::go().await, redis().await);
    let replicas = replicas(&server.url(), &redis.address()).await;
    let session = replicas[0].session().await;
    server.kill().await;
    server.start().await;
    greets(&replicas[1], &session).await;
    for replica in &replicas {
        greets(replica, &session).await;
    }
    let reopened = replicas.iter().map(|replica| replica.log().matches("it was opened anew").count());
    assert_eq!(reopened.sum::<usize>(), 1);
    assert_eq!(redis.cli(&["DBSIZE"]).await.unwrap(), "1", "a client knows one session");
}

#[tokio::test]
async fn two_replicas_that_open_a_session_anew_at_a_time_go_on_with_one() {
    let (mut backend, redis) = (Recorder::start().await, redis().await);
    let replicas = replicas(&backend.url(), &redis.address()).await;
    opened(&mut backend, &replicas[0]).await;
    let calls = async { tokio::join!(call(&replicas[0], "first"), call(&replicas[1], "first")) };
    let ((one, other), (used, ended)) = tokio::join!(calls, async {
        for lost in [backend.next().await, backend.next().await] {
            lost.json("404 Not Found", "", "").await;
        }
        let handshakes = [backend.next().await, backend.next().await];
        for (handshake, session) in handshakes.into_iter().zip(["second", "third"]) {
            assert_eq!(handshake.body, INITIALIZE.as_bytes());
            handshake.json("200 OK", &format!("mcp-session-id: {session}\r\n"), DONE).await;
        }
        let (mut used, mut ended) = (Vec::new(), Vec::new());
        while used.len() + ended.len() < 3 {
            let request = backend.next().await;
            let session = request.header("mcp-session-id").unwrap().to_owned();
            if request.head.starts_with("DELETE ") {
                ended.push(session);
                request.json("200 OK", "", "").await;
            } else if request.body == CALL.as_bytes() {
                used.push(session);
                request.json("200 OK", "", DONE).await;
            } else {
                request.json("202 Accepted", "", "").await;
            }
        }
        (used, ended)
    });
    assert_eq!((one.status, other.status), (200, 200));
    assert_eq!(used[0], used[1]);
    assert_ne!(vec![used[0].clone()], ended);
    assert_eq!(ended.len(), 1, "the server's other session is nobody's");
}

// The server keeps the events that a client has missed; a proxy keeps none.
#[tokio::test]
async fn a_stream_is_resumed_at_another_replica_where_the_server_does_that() {
    let (mut backend, redis) = (Recorder::start().await, redis().await);
    let replicas = replicas(&backend.url(), &redis.address()).await;
    opened(&mut backend, &replicas[0]).await;
    let headers = [("mcp-session-id", "first"), ("accept", "text/event-stream"), ("last-event-id", "e7")];
    let (answer, ()) = tokio::join!(replicas[1].request(Method::GET, "/mcp", &headers, ""), async {
        let request = backend.next().await;
        assert_eq!((request.header("mcp-session-id"), request.header("last-event-id")), (Some("first"), Some("e7")));
        request
            .answer(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 16\r\n\r\nid: e8\ndata: x\n\n",
            )
            .await;
    });
    assert_eq!((answer.status, &*answer.body), (200, "id: e8\ndata: x\n\n"));
}

#[tokio::test]
async fn a_message_to_one_replica_is_answered_on_the_stream_of_another() {
    let (server, redis) = (Server::node_sse().await, redis().await);
    let start = || async {
        let flags = ["--backend".into(), server.url().into()];
        Runner::start("sse", &in_redis(&redis.address()), &flags, &[]).await
    };
    let replicas = [start().await, start().await];
    let (mut stream, url) = sse::open(&replicas[0]).await;
    assert_eq!(sse::post(&replicas[1], &url).await, 202);
    assert!(sse::heard(&mut stream).await.contains(r#""id":"init""#));
}

#[tokio::test]
async fn a_client_that_changes_replicas_notices_nothing() {
    let (server, redis) = (Server::node().await, redis().await);
    let replicas = replicas(&server.url(), &redis.address()).await;
    // Its connections are spread over both, as by a Service.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let addresses = [replicas[0].address, replicas[1].address];
    let spreading = tokio::spawn(async move {
        for address in addresses.into_iter().cycle() {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut replica = TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut replica).await;
            });
        }
    });
    let mut client = SdkClient::connect(&url).await;
    for message in ["a", "b", "c", "d"] {
        let text = client.call("echo", json!({"message": message})).await;
        assert!(text.ends_with(message), "{text}");
    }
    client.ask(json!({"do": "leave"})).await;
    spreading.abort();
}

/// A session that ToolHive's runner wrote, as the data of a Redis: its key, its value, and the id that the client has.
fn recorded(case: &str) -> (String, String, String) {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../../redis/tests/recorded/sessions.json")).unwrap();
    let case = cases.iter().find(|it| it["case"] == case).unwrap();
    let client = case["session_id_seen_by_client"].as_str().unwrap();
    let lost = "keys_after_backend_lost_its_sessions_and_one_more_call";
    let keys = case.get(lost).unwrap_or(&case["keys"]).as_array().unwrap();
    let is_it = |entry: &&Value| entry["decoded"]["id"] == client || client.starts_with("SESSION");
    let entry = keys.iter().find(is_it).unwrap();
    let text = |member: &str| entry[member].as_str().unwrap().to_owned();
    (text("key"), text("value"), client.to_owned())
}

#[tokio::test]
async fn a_session_that_toolhives_runner_opened_is_continued() {
    let signer = Signer::ec("a");
    let (issuer, redis) = (Issuer::start(vec![signer.clone()]).await, redis().await);
    let alice = format!("Bearer {}", signer.sign("ES256", &issuer.claims("alice")));
    for (case, login) in [
        ("remote-no-login", false),
        ("remote-login", true),
        ("remote-login-odd-ids", true),
        ("local-no-login", false),
        ("local-login", true),
    ] {
        let mut backend = Recorder::start().await;
        let (key, value, session) = recorded(case);
        let written: Value = serde_json::from_str(&value).unwrap();
        let metadata = &written["metadata"];
        let value = value.replace("http://127.0.0.1:26500", &issuer.url());
        let value = value.replace(metadata["backend_url"].as_str().unwrap(), &backend.url());
        redis.cli(&["SET", &key, &value, "EX", "7200"]).await.unwrap();
        let mut members = in_redis(&redis.address());
        members["scaling_config"]["session_redis"]["key_prefix"] = key[..=key.rfind(':').unwrap()].into();
        if login {
            members["oidc_config"] = issuer.login(&json!({}));
        }
        let flags = ["--backend", &backend.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(OsString::from);
        let replica = Runner::start("streamable-http", &members, &flags, &[("USER", "root")]).await;
        let headers = [("mcp-session-id", &*session), ("authorization", &*alice)];
        let (answer, named) = tokio::join!(replica.post(&headers[..=usize::from(login)], CALL), async {
            let request = backend.next().await;
            let named =
                request.header("mcp-session-id").unwrap_or_else(|| panic!("{case}: {}", request.head)).to_owned();
            request.json("200 OK", "", DONE).await;
            named
        });
        assert_eq!((answer.status, &*answer.body), (200, DONE), "{case}: {answer:?}");
        assert_eq!(named, metadata["backend_sid"].as_str().unwrap_or(&session), "{case}");
    }
}
