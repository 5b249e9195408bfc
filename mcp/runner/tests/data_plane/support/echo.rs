//! A server that answers each message with an empty result, and keeps the headers that it got.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) struct Echo {
    address: SocketAddr,
    got: Arc<Mutex<Vec<HeaderMap>>>,
    running: JoinHandle<()>,
}

impl Echo {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, got) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let kept = Arc::clone(&got);
        let running = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                let service = service_fn(move |request| answer(Arc::clone(&kept), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, got, running }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The values of a header in the requests so far, but for the runner's own checks.
    pub(crate) fn got(&self, name: &str) -> Vec<Option<String>> {
        let got = self.got.lock().unwrap();
        got.iter().map(|headers| headers.get(name).map(|value| value.to_str().unwrap().to_owned())).collect()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn answer(
    got: Arc<Mutex<Vec<HeaderMap>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    if head.method != Method::POST || message["id"] == "health" {
        return Ok(Response::default());
    }
    got.lock().unwrap().push(head.headers);
    let result = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}}).to_string();
    Ok(Response::builder().header("content-type", "application/json").body(Full::from(result)).unwrap())
}
