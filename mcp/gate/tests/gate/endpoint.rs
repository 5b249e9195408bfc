//! A webhook: an HTTPS server of this process that records what it is asked and answers as the test says.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// One call of the webhook.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The webhook's behaviour for a call.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Answer(StatusCode, Vec<u8>),
    /// Header after this long, and then `{"allowed":true}`.
    After(Duration),
    Redirect(String),
    /// Never an answer.
    Silence,
    /// A header, and then nothing.
    HalfAnswer,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::Answer(StatusCode::OK, body.into())
    }

    pub(crate) fn allow() -> Self {
        Self::ok(r#"{"version":"v0.1.0","uid":"x","allowed":true}"#)
    }

    /// Allowed, with a patch.
    pub(crate) fn patch(patch: &str) -> Self {
        Self::ok(format!(r#"{{"allowed":true,"patch_type":"json_patch","patch":{patch}}}"#))
    }
}

pub(crate) type Behaviour = Box<dyn Fn(&Call) -> Reply + Send + Sync>;

/// The running webhook; it ends when this is dropped.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    behaviour: Behaviour,
    calls: Mutex<Vec<Call>>,
    connections: Mutex<usize>,
    tls: Mutex<Option<Arc<ServerConfig>>>,
}

impl Endpoint {
    /// Serves TLS under `tls`, or plain HTTP without.
    pub(crate) async fn start(
        tls: Option<ServerConfig>,
        behaviour: impl Fn(&Call) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/review", listener.local_addr().unwrap());
        let state = Arc::new(State {
            behaviour: Box::new(behaviour),
            calls: Mutex::default(),
            connections: Mutex::default(),
            tls: Mutex::new(tls.map(Arc::new)),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { url, state, accepting }
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.calls.lock().unwrap().clone()
    }

    /// The number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        *self.state.connections.lock().unwrap()
    }

    /// New connections are served under `tls`.
    pub(crate) fn serve(&self, tls: ServerConfig) {
        *self.state.tls.lock().unwrap() = Some(Arc::new(tls));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        *state.connections.lock().unwrap() += 1;
        let tls = state.tls.lock().unwrap().clone();
        let state = Arc::clone(&state);
        connections.spawn(async move {
            match tls {
                Some(tls) => {
                    if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                        serve(stream, state).await;
                    }
                }
                None => serve(stream, state).await,
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, state: Arc<State>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&state)));
    // Clients that go away are part of the tests.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/review"));
    let call = Call { headers: head.headers, body: body.collect().await?.to_bytes() };
    let reply = (state.behaviour)(&call);
    state.calls.lock().unwrap().push(call);
    let full = |bytes: Vec<u8>| http_body_util::Full::new(bytes.into()).boxed_unsync();
    let response = Response::builder();
    Ok(match reply {
        Reply::Answer(status, body) => response.status(status).body(full(body)),
        Reply::After(delay) => {
            tokio::time::sleep(delay).await;
            response.body(full(br#"{"allowed":true}"#.to_vec()))
        }
        Reply::Redirect(to) => response.status(307).header("location", to).body(full(Vec::new())),
        Reply::Silence => std::future::pending().await,
        Reply::HalfAnswer => {
            let start = futures::stream::once(async { Ok(Frame::data(Bytes::from_static(b"{\"allowed\":"))) });
            let never = futures::stream::pending();
            response.body(StreamBody::new(futures::StreamExt::chain(start, never)).boxed_unsync())
        }
    }
    .unwrap())
}
