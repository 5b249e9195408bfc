//! A transport and a pipe that are written here, outside of mcp-transport, behind the chain of mcp-gate.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, Response, StatusCode};
use mcp_http::{Body, BoxService, collect, full, json};
use mcp_middleware::{Chain, ProxySettings, RequestContext};
use mcp_runconfig::MiddlewareConfig;
use mcp_store::{Limits, MemorySessions};
use mcp_transport::{BoxFuture, Closed, End, OpenError, OpenPipe, Pipe, Streamable, StreamableConfig, Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;
use tower::service_fn;

/// A transport without a server: it answers with the message that the chain read.
#[derive(Debug)]
struct Mirror;

impl Transport for Mirror {
    fn service(&self) -> BoxService {
        BoxService::new(service_fn(|request: Request<Body>| async move {
            let context = RequestContext::of(request.extensions()).unwrap();
            let message = context.message().unwrap();
            Ok::<_, Infallible>(json(StatusCode::OK, message.body().clone()))
        }))
    }

    fn sessions(&self) -> usize {
        0
    }
}

/// A pipe to a server in this process, which remembers the ids that it saw.
#[derive(Debug, Default)]
struct Local {
    ids: Arc<Mutex<Vec<String>>>,
}

struct Serving(JoinHandle<()>);

impl Pipe for Local {
    fn open(&self) -> BoxFuture<'_, Result<OpenPipe, OpenError>> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let server = tokio::spawn(serve(theirs, Arc::clone(&self.ids)));
        let (read, write) = tokio::io::split(ours);
        let open = OpenPipe { read: Box::new(read), write: Box::new(write), end: Box::new(Serving(server)) };
        Box::pin(async { Ok(open) })
    }
}

impl End for Serving {
    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async { drop((&mut self.0).await) })
    }

    fn close(self: Box<Self>, _why: &'static str) -> BoxFuture<'static, Closed> {
        self.0.abort();
        Box::pin(async { Closed::Gone })
    }
}

async fn serve(stream: DuplexStream, ids: Arc<Mutex<Vec<String>>>) {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let Some(id) = message.get("id") else { continue };
        ids.lock().unwrap().push(id.to_string());
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"method": message["method"]}});
        write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
}

fn chain() -> Chain {
    let configs = [("bodylimit", json!({"max_bytes": 1000})), ("auth", json!({})), ("mcp-parser", json!({}))];
    let configs = configs.map(|(kind, parameters)| MiddlewareConfig::new(kind, parameters));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let settings = ProxySettings::new("192.0.2.2:80".parse().unwrap(), provider);
    let mut registry = mcp_gate::registry();
    mcp_authn::register(&mut registry);
    registry.build(&configs, settings).now_or_never().unwrap().unwrap()
}

async fn post(chain: &Chain, transport: &dyn Transport, session: Option<&str>, body: &str) -> (Response<()>, Value) {
    let context = chain.context("192.0.2.1:1".parse().unwrap());
    let mut request = Request::post("/mcp").header("content-type", "application/json");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    let request = request.body(full(body.to_owned())).unwrap();
    let (parts, body) = chain.serve(&context, request, &transport.service()).await.into_parts();
    let body = collect(body, 1 << 20).await.unwrap();
    (Response::from_parts(parts, ()), serde_json::from_slice(&body).unwrap_or(Value::Null))
}

const PING: &str = r#"{"jsonrpc":"2.0","id":"c","method":"ping"}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;

#[tokio::test]
async fn a_transport_from_outside_runs_behind_the_gate() {
    let (head, body) = post(&chain(), &Mirror, None, PING).await;
    assert_eq!((head.status().as_u16(), &body["method"]), (200, &json!("ping")));
    let batch = format!("[{PING}]");
    let (head, body) = post(&chain(), &Mirror, None, &batch).await;
    assert_eq!((head.status().as_u16(), &body["error"]["code"]), (400, &json!(-32600)));
}

#[tokio::test]
async fn two_proxies_on_one_server_do_not_use_the_same_ids_for_their_calls() {
    let ids = Arc::<Mutex<Vec<String>>>::default();
    for _ in 0..2 {
        let pipe = Arc::new(Local { ids: Arc::clone(&ids) });
        let sessions = Arc::new(MemorySessions::new(Limits::new(Duration::from_mins(1))));
        let front = Streamable::start(pipe, StreamableConfig::default(), sessions).await.unwrap();
        let chain = chain();
        let (head, _) = post(&chain, &front, None, INITIALIZE).await;
        let session = head.headers()["mcp-session-id"].to_str().unwrap();
        for _ in 0..3 {
            let (head, body) = post(&chain, &front, Some(session), PING).await;
            assert_eq!((head.status().as_u16(), &body["id"]), (200, &json!("c")), "{body}");
        }
        assert_eq!(front.sessions(), 1);
        Box::new(front).shut_down().await;
    }
    let mut ids = ids.lock().unwrap().clone();
    assert_eq!(ids.len(), 8);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 8);
}

/// A server that somebody else starts, once it is told to. A deaf one never reads, and goes on when its input ends.
#[derive(Debug, Default)]
struct Elsewhere {
    started: tokio::sync::Notify,
    deaf: bool,
    /// How long an attachment lasts that nothing comes from.
    lasts: Option<Duration>,
}

/// Keeps its end of the pipe open.
struct Deaf(#[expect(dead_code, reason = "see above")] DuplexStream, Option<Duration>);

impl Pipe for Elsewhere {
    fn open(&self) -> BoxFuture<'_, Result<OpenPipe, OpenError>> {
        Box::pin(async {
            self.started.notified().await;
            // It goes on.
            self.started.notify_one();
            if !self.deaf {
                return Local { ids: Arc::default() }.open().await;
            }
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let (read, write) = tokio::io::split(ours);
            Ok(OpenPipe { read: Box::new(read), write: Box::new(write), end: Box::new(Deaf(theirs, self.lasts)) })
        })
    }

    fn is_started_elsewhere(&self) -> bool {
        true
    }
}

impl End for Deaf {
    fn ended(&mut self) -> BoxFuture<'_, ()> {
        let lasts = self.1;
        Box::pin(async move {
            match lasts {
                Some(lasts) => tokio::time::sleep(lasts).await,
                None => std::future::pending().await,
            }
        })
    }

    fn close(self: Box<Self>, why: &'static str) -> BoxFuture<'static, Closed> {
        Box::pin(async move { if why == "of itself" { Closed::Gone } else { Closed::Stays } })
    }
}

async fn front(pipe: Arc<Elsewhere>) -> Streamable {
    let sessions = Arc::new(MemorySessions::new(Limits::new(Duration::from_mins(10))));
    Streamable::start(pipe, StreamableConfig::default(), sessions).await.unwrap()
}

#[tokio::test]
async fn a_call_waits_for_a_server_that_somebody_else_starts() {
    let pipe = Arc::<Elsewhere>::default();
    let front = front(Arc::clone(&pipe)).await;
    assert!(!front.is_running());
    let chain = chain();
    let ((head, _), ()) = tokio::join!(post(&chain, &front, None, INITIALIZE), async { pipe.started.notify_one() });
    assert_eq!(head.status().as_u16(), 200);
    assert!(front.is_running());
    assert_eq!(Box::new(front).shut_down().await, Closed::Gone);
}

/// Its input was closed by a proxy before this one, which nobody can see.
#[tokio::test(start_paused = true)]
async fn a_server_that_answers_nothing_and_does_not_end_with_its_input_is_given_up_for_its_operator_to_replace() {
    // The node may close attachments that are silent.
    for lasts in [None, Some(Duration::from_secs(65))] {
        let pipe = Arc::new(Elsewhere { deaf: true, lasts, ..Elsewhere::default() });
        pipe.started.notify_one();
        let front = front(pipe).await;
        let calls = async {
            loop {
                let (head, _) = post(&chain(), &front, None, INITIALIZE).await;
                assert_eq!(head.status().as_u16(), 502);
            }
        };
        tokio::select! {
            () = calls => {}
            closed = front.failed() => assert_eq!(closed, Closed::Stays),
        }
        // Nobody waits for it any more.
        let (head, _) = post(&chain(), &front, None, INITIALIZE).await;
        assert_ne!(head.status().as_u16(), 200);
        assert_eq!(Box::new(front).shut_down().await, Closed::Stays);
    }
}
