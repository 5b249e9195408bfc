//! OTLP/gRPC: unary calls over one connection of HTTP/2.
//!
//! A call is a POST with one message behind a prefix of five bytes, and its status is a trailer
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>). A library for all of gRPC would bring its own connections, without the guard.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioExecutor;
use mcp_http::client::{Client, RequestLimits};
use tokio::sync::Mutex;

use super::failure::Failure;
use super::signal::Signal;

/// Whether the message is compressed, and its length.
const PREFIX: usize = 5;
/// The longest headers of an answer.
const HEAD: u32 = 16 << 10;

/// Calls of the services of OTLP at a collector.
pub(super) struct Grpc {
    server: Uri,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Grpc {
    pub(super) fn new(server: Uri) -> Self {
        Self { server, connection: Mutex::default() }
    }

    /// Exports a message, and returns that of the answer.
    pub(super) async fn call(
        &self,
        client: &Client,
        signal: Signal,
        headers: &HeaderMap,
        message: &[u8],
        limits: RequestLimits,
    ) -> Result<Bytes, Failure> {
        let mut request = Request::new(Full::new(framed(message)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.method(signal);
        *request.headers_mut() = headers.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        let answer = self
            .connection(client, limits)
            .await?
            .send_request(request)
            .await
            .map_err(|error| Failure::network(&error))?;
        let (head, body) = answer.into_parts();
        if head.status != StatusCode::OK {
            return Err(Failure::status(head.status));
        }
        let body = Limited::new(body, limits.answer).collect().await.map_err(|error| Failure::network(&*error))?;
        // An answer without a message has its status among the headers.
        let status = [body.trailers(), Some(&head.headers)].into_iter().flatten().find_map(|it| it.get("grpc-status"));
        match status.and_then(|status| status.to_str().ok()?.parse().ok()) {
            Some(0) => Ok(body.to_bytes().get(PREFIX..).map(Bytes::copy_from_slice).unwrap_or_default()),
            status => Err(Failure::code(status)),
        }
    }

    /// Has the next call open a connection.
    pub(super) async fn disconnect(&self) {
        *self.connection.lock().await = None;
    }

    /// The connection, opened where there is none. Its driver ends with it.
    async fn connection(&self, client: &Client, limits: RequestLimits) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_mut()
            && open.ready().await.is_ok()
        {
            return Ok(open.clone());
        }
        let stream = client.open(b"h2", limits.time).await?;
        let handshake = http2::Builder::new(TokioExecutor::new()).max_header_list_size(HEAD).handshake(stream).await;
        let (sender, driver) = handshake.map_err(|error| Failure::network(&error))?;
        tokio::spawn(driver);
        *connection = Some(sender.clone());
        Ok(sender)
    }

    fn method(&self, signal: Signal) -> Uri {
        let mut parts = self.server.clone().into_parts();
        parts.path_and_query = Some(signal.method());
        // It stays one, with another path.
        Uri::from_parts(parts).unwrap_or_default()
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}
