//! `/healthz`, `/readyz` and `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use portcullis_listener::{Handler, Incoming};
use portcullis_metrics::Metrics;

/// The time that a wait at start may take before it is logged.
const PATIENCE: Duration = Duration::from_secs(5);

/// Says whether the process lives and whether it can do its work. Ready once, it stays ready until it ends: if
/// endpoints went away because of a passing fault, the cluster's writes would fail.
///
/// Each part of the process reports for itself; the whole is ready when all are.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// The condition that each part waits for.
    waiting_for: watch::Sender<BTreeMap<&'static str, Arc<str>>>,
    part: &'static str,
    metrics: Metrics,
}

impl Health {
    pub(super) fn new(waiting_for: &str, metrics: Metrics) -> Self {
        let health = Self { waiting_for: watch::Sender::default(), part: "", metrics };
        health.waiting_for(waiting_for);
        health
    }

    /// Adds another part, which is not ready yet.
    pub(super) fn part(&self, part: &'static str) -> Self {
        let health = Self { part, ..self.clone() };
        health.waiting_for(part);
        health
    }

    pub(super) fn is_ready(&self) -> bool {
        self.waiting_for.borrow().is_empty()
    }

    /// The condition that the first part which is not ready waits for.
    pub(super) fn first_missing(&self) -> Option<Arc<str>> {
        self.waiting_for.borrow().values().next().cloned()
    }

    /// Ends when all parts are ready.
    pub(super) async fn until_all_ready(&self) {
        let mut waiting_for = self.waiting_for.subscribe();
        // It cannot be closed while we hold it.
        let _ = waiting_for.wait_for(BTreeMap::is_empty).await;
    }

    /// Ends when this part is ready.
    pub(super) async fn until_ready(&self) {
        let mut waiting_for = self.waiting_for.subscribe();
        // It cannot be closed while we hold it.
        let _ = waiting_for.wait_for(|parts| !parts.contains_key(self.part)).await;
    }

    /// Waits for `work`. While it lasts, what this part waits for is logged once it has waited for some time, and
    /// whenever that changes: not every reader of the log reads `/readyz`.
    pub(super) async fn logged_during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut logged = None;
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = sleep(PATIENCE) => {}
            }
            let now = self.waiting_for.borrow().get(self.part).cloned();
            if let Some(what) = now.as_ref().filter(|_| now != logged) {
                warn!("not ready yet: waiting for {what}");
            }
            logged = now;
        }
    }

    pub(super) fn waiting_for(&self, what: impl Into<Arc<str>>) {
        self.waiting_for.send_modify(|parts| _ = parts.insert(self.part, what.into()));
    }

    pub(super) fn ready(&self) {
        self.waiting_for.send_modify(|parts| _ = parts.remove(self.part));
    }
}

impl Handler for Health {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return answer(StatusCode::METHOD_NOT_ALLOWED, "ask with GET\n".to_owned());
        }
        match (request.uri().path(), self.first_missing()) {
            ("/healthz", _) | ("/readyz", None) => answer(StatusCode::OK, "ok\n".to_owned()),
            ("/readyz", Some(what)) => answer(StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {what}\n")),
            ("/metrics", _) => {
                let mut response = answer(StatusCode::OK, self.metrics.encode());
                let text = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, text);
                response
            }
            _ => answer(StatusCode::NOT_FOUND, "GET /healthz, /readyz or /metrics\n".to_owned()),
        }
    }
}

fn answer(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use portcullis_listener::{Limits, Server};

    async fn ask(address: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        timeout(Duration::from_mins(1), stream.read_to_string(&mut reply)).await.expect("an answer").unwrap();
        reply
    }

    #[tokio::test]
    async fn probes_and_metrics_are_answered_on_one_plain_listener() {
        let health = Health::new("certificates", Metrics::new());
        let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Limits::default()).await.unwrap();
        let (address, stop) = (server.local_addr().unwrap(), CancellationToken::new());
        let _stop = stop.clone().drop_guard();
        tokio::spawn(server.serve_plain(Arc::new(health.clone()), stop));

        assert!(ask(address, "GET /healthz").await.starts_with("HTTP/1.1 200"));
        let waiting = ask(address, "GET /readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503") && waiting.contains("waiting for certificates"), "{waiting}");
        let leases = health.part("leases");
        health.ready();
        let waiting = ask(address, "GET /readyz").await;
        assert!(waiting.contains("waiting for leases"), "{waiting}");
        leases.ready();
        assert!(ask(address, "HEAD /readyz").await.starts_with("HTTP/1.1 200"));
        let metrics = ask(address, "GET /metrics").await;
        assert!(metrics.contains("application/openmetrics-text") && metrics.ends_with("# EOF\n"), "{metrics}");
        assert!(ask(address, "POST /metrics").await.starts_with("HTTP/1.1 405"));
        assert!(ask(address, "GET /").await.starts_with("HTTP/1.1 404"));
    }
}
