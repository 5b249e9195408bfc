//! A server of several pods, each of which knows its own sessions only, behind replicas of the proxy that share a store of sessions.
//!
//! The proxies here are the runner's transport without its process, because nothing but their store can be shared between processes yet.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use mcp_http::{Body, BoxService, full};
use mcp_store::{Client, Limits, MemorySessions, Principal, SessionRecord, SessionStore};
use mcp_transport::{Proxy, ProxyConfig, Transport as _};
use portcullis_testing::Stopwatch;

use crate::support::{INITIALIZE, Recorder, Server, within};

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"greet","arguments":{"name":"you"}}}"#;

/// One port on two addresses of loopback, as pods have it.
fn addresses() -> [SocketAddr; 2] {
    addresses_of(["127.0.0.2", "127.0.0.3"])
}

fn addresses_of([first, second]: [&str; 2]) -> [SocketAddr; 2] {
    loop {
        let first = TcpListener::bind((first, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = TcpListener::bind((second, port)) {
            return [first.local_addr().unwrap(), second.local_addr().unwrap()];
        }
    }
}

fn store() -> Arc<MemorySessions> {
    Arc::new(MemorySessions::new(Limits::new(Duration::from_hours(1))))
}

/// What the store holds of a session.
async fn kept(store: &MemorySessions, id: &str) -> Option<SessionRecord> {
    let record = store.load(id, &Principal::unauthenticated()).await.unwrap();
    record.as_deref().cloned()
}

/// One replica of the proxy.
struct Replica(BoxService);

impl Replica {
    /// One for which the server's name leads to `pod` at the moment.
    fn of(pod: SocketAddr, sessions: &Arc<MemorySessions>) -> Self {
        Self::named(&pod.to_string(), sessions)
    }

    /// One for a server of this name and port.
    fn named(server: &str, sessions: &Arc<MemorySessions>) -> Self {
        let sessions = Arc::clone(sessions);
        Self(Proxy::new(ProxyConfig::new(&format!("http://{server}")).unwrap(), sessions).service())
    }

    async fn send(&self, method: Method, session: Option<&str>, body: &str) -> Response<Body> {
        let request = Request::builder().method(method).uri("/mcp");
        let accepted = "application/json, text/event-stream";
        let mut request = request.header("content-type", "application/json").header("accept", accepted);
        if let Some(session) = session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
        }
        let request = request.body(full(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        within("the head of an answer", self.0.call(request)).await
    }

    async fn ask(&self, method: Method, session: Option<&str>, body: &str) -> (StatusCode, Option<String>, String) {
        let (parts, body) = self.send(method, session, body).await.into_parts();
        let body = within("the end of an answer", body.collect()).await.unwrap().to_bytes();
        let session = parts.headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        (parts.status, session, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Opens a session and returns its id.
    async fn open(&self, handshake: &str) -> String {
        let (status, session, body) = self.ask(Method::POST, None, handshake).await;
        assert_eq!(status, 200, "{body}");
        let session = session.unwrap();
        let (status, _, body) = self.ask(Method::POST, Some(&session), INITIALIZED).await;
        assert_eq!(status, 202, "{body}");
        session
    }

    async fn greets(&self, session: &str) {
        static ID: AtomicUsize = AtomicUsize::new(100);
        // The server refuses an id that is under way.
        let call = CALL.replace('7', &ID.fetch_add(1, Relaxed).to_string());
        let (status, named, body) = self.ask(Method::POST, Some(session), &call).await;
        assert!(status == 200 && body.contains("Hi you"), "{status} {body}");
        assert!(named.is_none_or(|named| named == session), "the client keeps its id");
    }
}

/// What a pod says to a client that is not led by a proxy.
async fn at_the_pod(pod: SocketAddr, session: &str) -> StatusCode {
    let store = store();
    store.insert(unpinned(session), &Client::Principal(Principal::unauthenticated())).await.unwrap();
    Replica::of(pod, &store).ask(Method::POST, Some(session), CALL).await.0
}

/// A session of which nobody knows who opened it, and how.
fn unpinned(session: &str) -> SessionRecord {
    SessionRecord::new(session, Principal::unauthenticated())
}

#[tokio::test]
async fn a_session_does_not_reach_a_pod_that_has_not_opened_it() {
    let [first, second] = addresses();
    let _pods = [Server::go_at(first).await, Server::go_at(second).await];
    let store = store();
    let replicas = [Replica::of(first, &store), Replica::of(second, &store)];
    let sessions = [replicas[0].open(INITIALIZE).await, replicas[1].open(INITIALIZE).await];
    // Both have connections to both now and then, and the last one used is the other pod's.
    for _ in 0..3 {
        for (replica, session) in replicas.iter().flat_map(|replica| sessions.iter().map(move |id| (replica, id))) {
            replica.greets(session).await;
        }
    }
    let calls = (0..16).map(|n| replicas[n / 8].greets(&sessions[n % 2]));
    join_all(calls).await;
    for (session, own, other) in [(&sessions[0], first, second), (&sessions[1], second, first)] {
        let record = kept(&store, session).await.unwrap();
        assert_eq!((record.backend_address, record.backend_id), (Some(own), None), "never opened anew");
        assert_eq!(at_the_pod(other, session).await, 404, "it would have been told");
    }
    // The end of a session reaches its pod too.
    let (status, ..) = replicas[1].ask(Method::DELETE, Some(&sessions[0]), "").await;
    assert_eq!(status, 204);
    assert_eq!(kept(&store, &sessions[0]).await, None);
    assert_eq!(at_the_pod(first, &sessions[0]).await, 404);
}

#[tokio::test]
async fn a_session_does_not_end_with_the_pod_that_opened_it() {
    let [first, second] = addresses();
    let (mut pod, _other) = (Server::go_at(first).await, Server::go_at(second).await);
    let store = store();
    let replica = Replica::of(second, &store);
    let session = Replica::of(first, &store).open(INITIALIZE).await;
    // A stream of the session is at its pod: it ends with that.
    let stream = replica.send(Method::GET, Some(&session), "").await;
    assert!(stream.status() == 200 && stream.headers()["content-type"] == "text/event-stream", "{stream:?}");
    replica.greets(&session).await;
    assert_eq!(kept(&store, &session).await.unwrap().backend_id, None, "neither of them was opened anew for");
    pod.kill().await;
    let _ = within("the stream to end with its pod", stream.into_body().collect()).await;
    replica.greets(&session).await;
    let record = kept(&store, &session).await.unwrap();
    assert_eq!(record.backend_address, Some(second));
    assert!(record.backend_id.is_some_and(|id| *id != *session), "the other pod has an id of its own");
    let stream = replica.send(Method::GET, Some(&session), "").await;
    assert!(stream.status() == 200 && stream.headers()["content-type"] == "text/event-stream", "{stream:?}");
    // A replica whose name led to the pod that is gone finds it too: the store says where.
    Replica::of(first, &store).greets(&session).await;
}

#[tokio::test]
async fn a_session_does_not_follow_an_address_that_the_name_lost() {
    // The name `localhost` leads to the second alone: the first is another tenant's pod by now.
    let [theirs, ours] = addresses_of(["127.0.0.2", "127.0.0.1"]);
    let (_theirs, _ours) = (Server::go_at(theirs).await, Server::go_at(ours).await);
    let store = store();
    let session = Replica::of(theirs, &store).open(INITIALIZE).await;
    assert_eq!(kept(&store, &session).await.unwrap().backend_address, Some(theirs));
    let replica = Replica::named(&format!("localhost:{}", ours.port()), &store);
    replica.greets(&session).await;
    assert_eq!(kept(&store, &session).await.unwrap().backend_address, Some(ours), "opened anew where the name leads");
}

#[tokio::test]
async fn a_pod_that_dies_under_many_calls_does_not_have_their_session_opened_more_than_once() {
    let [first, second] = addresses();
    let mut pod = Server::go_at(first).await;
    let store = store();
    let session = Replica::of(first, &store).open(INITIALIZE).await;
    pod.kill().await;
    let (mut other, replica) = (Recorder::at(second).await, Replica::of(second, &store));
    let calls = join_all((0..8).map(|_| replica.ask(Method::POST, Some(&session), CALL)));
    let (answers, handshakes) = tokio::join!(calls, async {
        let (mut handshakes, mut calls) = (0, 0);
        while calls < 8 {
            let request = other.next().await;
            match (request.header("mcp-session-id"), std::str::from_utf8(&request.body).unwrap()) {
                (None, INITIALIZE) => {
                    handshakes += 1;
                    let result = r#"{"jsonrpc":"2.0","id":"init","result":{}}"#;
                    request.json("200 OK", "mcp-session-id: second\r\n", result).await;
                }
                (Some("second"), INITIALIZED) => request.json("202 Accepted", "", "").await,
                (Some("second"), CALL) => {
                    calls += 1;
                    request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
                }
                other => panic!("{other:?}"),
            }
        }
        handshakes
    });
    assert_eq!(handshakes, 1);
    assert!(answers.iter().all(|(status, ..)| *status == 200), "{answers:?}");
    assert!(other.is_quiet());
}

#[tokio::test]
async fn a_session_whose_handshake_is_not_kept_does_not_stay_with_a_pod_that_is_gone() {
    let [first, second] = addresses();
    let (mut pod, _other) = (Server::go_at(first).await, Server::go_at(second).await);
    let store = store();
    let long = INITIALIZE.replace(r#""name":"t""#, &format!(r#""name":"{}""#, "t".repeat(9 << 10)));
    let (one, replica) = (Replica::of(first, &store), Replica::of(second, &store));
    let (called, ended) = (one.open(&long).await, one.open(&long).await);
    replica.greets(&called).await;
    pod.kill().await;
    let (status, _, body) = replica.ask(Method::POST, Some(&called), CALL).await;
    assert_eq!(status, 404, "what makes a client initialize again: {body}");
    let (status, ..) = replica.ask(Method::DELETE, Some(&ended), "").await;
    assert_eq!((status, kept(&store, &ended).await), (StatusCode::NOT_FOUND, None));
}

#[tokio::test]
async fn calls_do_not_wait_for_each_other_while_no_pod_can_be_reached() {
    let [first, _] = addresses();
    let mut pod = Server::go_at(first).await;
    let store = store();
    let replica = Replica::of(first, &store);
    let session = replica.open(INITIALIZE).await;
    pod.kill().await;
    let began = Stopwatch::start();
    let answers = join_all((0..40).map(|_| replica.ask(Method::POST, Some(&session), CALL))).await;
    // One after another, with half a second of attempts each, they would take until the time limit of an opening, which is 15 s.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(
        answers.iter().all(|(status, _, body)| *status == 502 && body.contains("cannot be reached")),
        "{answers:?}"
    );
    pod.start().await;
    replica.greets(&session).await;
}

#[tokio::test]
async fn a_session_does_not_expire_while_the_answer_to_a_call_of_it_is_a_stream() {
    const TTL: Duration = Duration::from_secs(2);
    let mut server = Recorder::start().await;
    let store = Arc::new(MemorySessions::new(Limits::new(TTL)));
    for session in ["kept", "expires"] {
        store.insert(unpinned(session), &Client::Principal(Principal::unauthenticated())).await.unwrap();
    }
    let replica = Replica::of(server.address, &store);
    let (mut response, mut call) = tokio::join!(replica.send(Method::POST, Some("kept"), CALL), async {
        let mut call = server.next().await;
        call.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\n").await;
        call
    });
    within("an event", response.body_mut().frame()).await.unwrap().unwrap();
    // Nothing comes for longer than a session lives that nobody uses.
    assert!(tokio::time::timeout(2 * TTL, response.body_mut().frame()).await.is_err());
    assert!(kept(&store, "kept").await.is_some());
    assert!(kept(&store, "expires").await.is_none());
    call.part("data: {}\n\n").await;
    within("an event", response.body_mut().frame()).await.unwrap().unwrap();
}
