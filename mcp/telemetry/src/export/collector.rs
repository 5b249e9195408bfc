//! The collector: where it is, and one export to it.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri};
use mcp_http::client::{Client, ClientTls, RequestError, RequestLimits};
use mcp_http::file::rooted;
use mcp_middleware::{BuildContext, BuildError};
use mcp_runconfig::TelemetryConfig;
use mcp_runconfig::endpoint::{EndpointPolicy, without_secrets};
use tokio::time::timeout;

use super::failure::Failure;
use super::grpc::Grpc;
use super::headers::headers;
use super::signal::Signal;
use super::time;

/// The time that one export may take.
const TIME: Duration = Duration::from_secs(10);
/// The longest answer. It says no more than what the collector did not take.
const ANSWER: usize = 64 << 10;

const ENDPOINT: &str = "parameters.config.endpoint";
/// The variable with the protocol: `http/protobuf` or `grpc`; unset means the former.
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

/// A collector. Nothing is connected before the first export.
pub(super) struct Collector {
    client: Client,
    headers: HeaderMap,
    protocol: Protocol,
    limits: RequestLimits,
}

enum Protocol {
    /// OTLP/HTTP with Protocol Buffers: the paths of traces and metrics.
    Http([PathAndQuery; 2]),
    Grpc(Grpc),
}

impl Collector {
    /// The collector that `config` names.
    pub(super) fn new(config: &TelemetryConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let settings = &context.settings;
        let policy = EndpointPolicy {
            egress: settings.egress.clone(),
            ..EndpointPolicy::all_but_metadata(settings.exempt_endpoints.clone())
        };
        let uri = url(config, context, &policy)?;
        let fail_ca = |problem: String| {
            let fix = "mount the authorities of the collector's certificate there in PEM, and name the file by its absolute path";
            context.error("parameters.config.caCertPath", problem, fix)
        };
        let ca = match &*config.ca_cert_path {
            "" => None,
            path => Some(
                rooted(path, settings.files_root.as_deref())
                    .ok_or_else(|| fail_ca(format!("{path:?} is not an absolute path")))?,
            ),
        };
        let tls = ClientTls { ca, insecure: config.insecure, ..ClientTls::default() };
        let client = Client::new("telemetry", &uri, tls, Some(policy), &settings.provider);
        let client = client.map_err(|error| fail_ca(error.problem))?;
        let protocol = match &*(settings.variables)(PROTOCOL).unwrap_or_default() {
            "" | "http/protobuf" => Protocol::Http(paths(&uri)),
            "grpc" if uri.path() == "/" => Protocol::Grpc(Grpc::new(uri)),
            "grpc" => {
                let problem = format!("{:?} has a path, and gRPC has paths of its own", config.endpoint);
                return Err(context.error(ENDPOINT, problem, "name the collector as host:port"));
            }
            other => {
                let problem = format!("{PROTOCOL} is {other:?}, which this proxy does not speak");
                return Err(context.error(ENDPOINT, problem, "set that variable to http/protobuf or grpc"));
            }
        };
        let limits =
            RequestLimits { time: time(settings, "OTEL_EXPORTER_OTLP_TIMEOUT").unwrap_or(TIME), answer: ANSWER };
        Ok(Self { client, headers: headers(config, context)?, protocol, limits })
    }

    /// Its host and port, for the log.
    pub(super) fn host(&self) -> &str {
        self.client.server().authority().map(http::uri::Authority::as_str).unwrap_or_default()
    }

    /// Exports a message of this kind; returns the message of the answer.
    pub(super) async fn send(&self, signal: Signal, message: Bytes) -> Result<Bytes, Failure> {
        match &self.protocol {
            Protocol::Http(paths) => self.post(paths[signal as usize].clone(), message).await,
            Protocol::Grpc(grpc) => {
                let call = grpc.call(&self.client, signal, &self.headers, &message, self.limits);
                if let Ok(outcome) = timeout(self.limits.time, call).await {
                    return outcome;
                }
                // The connection may lead nowhere any more.
                grpc.disconnect().await;
                Err(RequestError::Timeout(self.limits.time).into())
            }
        }
    }

    async fn post(&self, path: PathAndQuery, message: Bytes) -> Result<Bytes, Failure> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let answer = self.client.post_to(path, headers, message, self.limits).await?;
        let status = answer.status();
        if status.is_success() { Ok(answer.into_body()) } else { Err(Failure::status(status)) }
    }
}

/// The URL of the collector: `endpoint` has none but where somebody wrote it into the document by hand.
fn url(config: &TelemetryConfig, context: &BuildContext, policy: &EndpointPolicy) -> Result<Uri, BuildError> {
    let fail = |problem: String, fix| context.error(ENDPOINT, problem, fix);
    let scheme = if config.insecure { "http" } else { "https" };
    let (written, rest) = config.endpoint.split_once("://").unwrap_or((scheme, &config.endpoint));
    let url = format!("{written}://{rest}");
    let shown = without_secrets(&url);
    if ["http", "https"].contains(&written) && written != scheme {
        let problem = format!("{shown:?} contradicts insecure, which is {}", config.insecure);
        return Err(fail(problem, "write host and port alone; with insecure, the collector is called without TLS"));
    }
    policy.check_url(&url).map_err(|error| fail(format!("{shown:?} {error}"), "name the collector as host:port"))?;
    let uri: Uri =
        url.parse().map_err(|error| fail(format!("{shown:?}: {error}"), "name the collector as host:port"))?;
    if uri.query().is_some() {
        return Err(fail(
            format!("{shown:?} has a query"),
            "name the collector as host:port, and write keys as headers",
        ));
    }
    Ok(uri)
}

/// The paths of traces and metrics below that of the URL.
fn paths(uri: &Uri) -> [PathAndQuery; 2] {
    let base = uri.path().trim_end_matches('/');
    [Signal::Traces, Signal::Metrics].map(|signal| {
        let path = format!("{base}/v1/{}", signal.as_str());
        // It is a path, as what it was made of is one.
        path.parse().unwrap_or_else(|_| PathAndQuery::from_static("/"))
    })
}
