//! A collector of traces and metrics, on the official messages and services of OTLP.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;

use super::within;

/// A way to export, by its name in the variable `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::Http, Self::Grpc];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http/protobuf",
            Self::Grpc => "grpc",
        }
    }
}

/// The message of one export, and its headers.
type Received<T> = (T, HeaderMap);

/// A collector, which ends when it is dropped.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    traces: UnboundedReceiver<Received<ExportTraceServiceRequest>>,
    metrics: UnboundedReceiver<Received<ExportMetricsServiceRequest>>,
    serving: JoinHandle<()>,
}

/// The services of a collector.
#[derive(Clone)]
struct Services {
    traces: UnboundedSender<Received<ExportTraceServiceRequest>>,
    metrics: UnboundedSender<Received<ExportMetricsServiceRequest>>,
    /// The number of spans that it says it did not take of each export.
    rejects: i64,
}

impl Collector {
    pub(crate) async fn start(protocol: Protocol) -> Self {
        Self::at(protocol, ([127, 0, 0, 1], 0).into(), 0).await
    }

    /// One that listens at `address`, and rejects so many spans of each export.
    pub(crate) async fn at(protocol: Protocol, address: SocketAddr, rejects: i64) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let ((traces, of_traces), (metrics, of_metrics)) = (unbounded_channel(), unbounded_channel());
        let services = Services { traces, metrics, rejects };
        let serving = match protocol {
            Protocol::Http => tokio::spawn(serve_http(listener, services)),
            Protocol::Grpc => tokio::spawn(async move {
                let server = tonic::transport::Server::builder()
                    .add_service(TraceServiceServer::new(services.clone()))
                    .add_service(MetricsServiceServer::new(services));
                server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap();
            }),
        };
        Self { address, traces: of_traces, metrics: of_metrics, serving }
    }

    /// The next export of spans.
    pub(crate) async fn traces(&mut self) -> Received<ExportTraceServiceRequest> {
        within("spans to reach the collector", self.traces.recv()).await.unwrap()
    }

    /// The next export of metrics.
    pub(crate) async fn metrics(&mut self) -> Received<ExportMetricsServiceRequest> {
        within("metrics to reach the collector", self.metrics.recv()).await.unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Accepts connections and does nothing with them, or resets them; ends when the task is aborted.
pub(crate) async fn broken_collector(resets: bool) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if resets {
                SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            } else {
                held.push(stream);
            }
        }
    });
    (address, accepting)
}

/// Ends each connection of HTTP/2 with `words` once a request has begun.
pub(crate) async fn parting_collector(words: &'static str) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
                stream.write_all(&SETTINGS).await?;
                // All that comes before the request is shorter.
                let mut buffer = [0; 300];
                stream.read_exact(&mut buffer).await?;
                // GOAWAY: no stream was processed, ENHANCE_YOUR_CALM.
                let length = u8::try_from(8 + words.len()).unwrap();
                let head = [0, 0, length, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11];
                stream.write_all(&[&head[..], words.as_bytes()].concat()).await?;
                stream.read_to_end(&mut Vec::new()).await
            });
        }
    });
    (address, accepting)
}

/// The spans of an export.
pub(crate) fn spans(export: &ExportTraceServiceRequest) -> impl Iterator<Item = &Span> {
    export.resource_spans.iter().flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans)
}

/// The value of an attribute that is a text.
pub(crate) fn text<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let value = &attributes.iter().find(|attribute| attribute.key == name)?.value;
    match value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

impl Services {
    fn traces(&self, request: ExportTraceServiceRequest, headers: HeaderMap) -> ExportTraceServiceResponse {
        let _ = self.traces.send((request, headers));
        let rejected =
            ExportTracePartialSuccess { rejected_spans: self.rejects, error_message: "too many for us".into() };
        ExportTraceServiceResponse { partial_success: (self.rejects > 0).then_some(rejected) }
    }

    fn metrics(&self, request: ExportMetricsServiceRequest, headers: HeaderMap) -> ExportMetricsServiceResponse {
        let _ = self.metrics.send((request, headers));
        ExportMetricsServiceResponse::default()
    }
}

#[tonic::async_trait]
impl TraceService for Services {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let (metadata, _, message) = request.into_parts();
        Ok(tonic::Response::new(self.traces(message, metadata.into_headers())))
    }
}

#[tonic::async_trait]
impl MetricsService for Services {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, tonic::Status> {
        let (metadata, _, message) = request.into_parts();
        Ok(tonic::Response::new(self.metrics(message, metadata.into_headers())))
    }
}

async fn serve_http(listener: TcpListener, services: Services) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let services = services.clone();
        let service = service_fn(move |request| answer(request, services.clone()));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(request: Request<Incoming>, services: Services) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let is_protobuf = head.headers.get("content-type").is_some_and(|kind| kind == "application/x-protobuf");
    let answer = match head.uri.path() {
        "/v1/traces" if is_protobuf => services.traces(Message::decode(body).unwrap(), head.headers).encode_to_vec(),
        "/v1/metrics" if is_protobuf => services.metrics(Message::decode(body).unwrap(), head.headers).encode_to_vec(),
        _ => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        }
    };
    Ok(Response::new(Full::new(answer.into())))
}
