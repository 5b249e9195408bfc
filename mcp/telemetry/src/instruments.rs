//! The instruments of ToolHive, and a bounded number of series in them (toolhive-runner §2.12, toolhive-0.63 §10).
//!
//! A series is resolved once, and its handles are kept: a request costs two look-ups and no label is built for it. Clients choose methods
//! and the names of tools, so the pairs of both are bounded; those beyond are counted as [`OTHER`]. A half of the bound is for names that the server
//! has answered with a result: names that it does not know leave it to those that it does.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use http::{Method, StatusCode, Version};
use mcp_store::{Bound, Client, Share, Shares};
use mcp_wire::is_method;
use opentelemetry::metrics::{
    BoundCounter, BoundHistogram, BoundUpDownCounter, Counter, Histogram, MeterProvider as _, UpDownCounter,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::metrics::SdkMeterProvider;

use crate::claim::Claim;

/// ToolHive's name of what makes its spans and metrics.
pub(crate) const SCOPE: &str = "github.com/stacklok/toolhive/pkg/telemetry";

/// The value of a label in place of those that are too many.
pub(crate) const OTHER: &str = "other";

/// The pairs of a method and a resource that have series of their own: those of any name, and as many of names that the server knows.
const OPERATIONS: usize = 256;
/// The pairs of each kind that requests of one client may add.
const OPERATIONS_OF_CLIENT: usize = 128;
/// The kinds of answers to an operation whose series are kept at hand. Series of others are looked up each time; the SDK bounds their number.
const ANSWERS: usize = 16;
/// The most bytes of a label's value.
const LONGEST: usize = 128;

/// The upper bounds of the buckets, in seconds.
const BUCKETS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The instruments of one proxy.
pub(crate) struct Instruments {
    requests: Counter<u64>,
    seconds: Histogram<f64>,
    tool_calls: Counter<u64>,
    operation_seconds: Histogram<f64>,
    connections: UpDownCounter<i64>,
    /// Requests under way.
    active: BoundUpDownCounter<i64>,
    /// Streams, from the first one on.
    streams: OnceLock<BoundUpDownCounter<i64>>,
    server: Arc<str>,
    transport: Arc<str>,
    network: Network,
    operations: RwLock<Operations>,
    any: Arc<Shares>,
    proven: Arc<Shares>,
}

/// The operations by method and resource.
type Operations = HashMap<Arc<str>, HashMap<Arc<str>, Arc<Operation>>>;

/// The connection between client and proxy, as attributes tell it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// The transport below the protocol.
    transport: &'static str,
    /// The protocol; `None` on a pipe.
    protocol: Option<&'static str>,
}

/// A method of MCP, and the resource that it acts on.
pub(crate) struct Operation {
    /// `None` where no message was read.
    method: Option<Arc<str>>,
    resource: Arc<str>,
    answers: RwLock<Vec<(Answer, Arc<Series>)>>,
    _share: Option<Share>,
}

/// The labels of series that come from a request's HTTP and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The request's HTTP method.
    pub(crate) method: &'static str,
    /// The version of HTTP.
    pub(crate) version: &'static str,
    /// The answer's status.
    pub(crate) status: StatusCode,
}

/// The series of requests that differ in nothing.
struct Series {
    requests: BoundCounter<u64>,
    seconds: BoundHistogram<f64>,
    operation_seconds: Option<BoundHistogram<f64>>,
    tool_calls: Option<BoundCounter<u64>>,
}

/// A request under way, or a stream that is open. It ends when it is dropped.
pub(crate) struct Active(BoundUpDownCounter<i64>);

// === impl Instruments ===

impl Instruments {
    /// The instruments of the MCP server `server` behind `transport`, in `meters`.
    pub(crate) fn new(meters: &SdkMeterProvider, server: &str, transport: &str) -> Self {
        let meter = meters.meter_with_scope(InstrumentationScope::builder(SCOPE).build());
        let (server, transport) = (Arc::<str>::from(server), Arc::<str>::from(transport));
        let connections = meter
            .i64_up_down_counter("toolhive_mcp_active_connections")
            .with_description("Number of active MCP connections")
            .build();
        Self {
            requests: meter
                .u64_counter("toolhive_mcp_requests")
                .with_description("Total number of MCP requests")
                .build(),
            seconds: meter
                .f64_histogram("toolhive_mcp_request_duration")
                .with_description("Duration of MCP requests in seconds")
                .with_unit("s")
                .with_boundaries(BUCKETS.to_vec())
                .build(),
            tool_calls: meter
                .u64_counter("toolhive_mcp_tool_calls")
                .with_description("Total number of MCP tool calls")
                .build(),
            operation_seconds: meter
                .f64_histogram("mcp.server.operation.duration")
                .with_description("Duration of MCP server operations")
                .with_unit("s")
                .with_boundaries(BUCKETS.to_vec())
                .build(),
            active: connections.bind(&of_server(&server, &transport)),
            streams: OnceLock::new(),
            connections,
            network: Network::of(&transport),
            server,
            transport,
            operations: RwLock::default(),
            any: Shares::new(OPERATIONS, OPERATIONS_OF_CLIENT),
            proven: Shares::new(OPERATIONS, OPERATIONS_OF_CLIENT),
        }
    }

    /// The network below the proxy's transport.
    pub(crate) fn network(&self) -> Network {
        self.network
    }

    /// The operation of a message with this method and resource; `client` is asked for where it is new, which then counts for its share. Where there
    /// is no room, the operation is that of others, and beside it is the claim to one of its own.
    pub(crate) fn operation(
        &self,
        method: Option<&str>,
        resource: &str,
        client: impl Fn() -> Client,
    ) -> (Arc<Operation>, Option<Claim>) {
        let (name, resource) = (cut(method.unwrap_or("unknown")), cut(resource));
        if let Some(operation) = self.known(name, resource) {
            return (operation, None);
        }
        if method.is_none() {
            return (self.add(name, None, resource, None), None);
        }
        if let Some(share) = self.any.take(&client(), 1) {
            return (self.add(name, Some(name), resource, Some(share)), None);
        }
        let claim = Claim::new(name, resource, client);
        let name = if is_method(name) { name } else { OTHER };
        let resource = if resource.is_empty() { "" } else { OTHER };
        let other = self.known(name, resource).unwrap_or_else(|| self.add(name, Some(name), resource, None));
        (other, claim)
    }

    /// The server knows the name that was claimed: it has an operation of its own from now on, where there is room.
    pub(crate) fn prove(&self, Claim { method, resource, client }: &Claim) {
        if let Some(share) = self.proven.take(client, 1) {
            self.add(method, Some(method), resource, Some(share));
        }
    }

    fn add(&self, name: &str, method: Option<&str>, resource: &str, share: Option<Share>) -> Arc<Operation> {
        let mut operations = self.operations.write().unwrap_or_else(PoisonError::into_inner);
        let of_method = operations.entry(name.into()).or_default();
        let new = || Arc::new(Operation::new(method, resource, share));
        Arc::clone(of_method.entry(resource.into()).or_insert_with(new))
    }

    fn known(&self, method: &str, resource: &str) -> Option<Arc<Operation>> {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        operations.get(method)?.get(resource).cloned()
    }

    /// The bound on series, for metrics.
    pub(crate) fn bound(&self) -> Bound {
        Bound { name: "telemetry_operations", used: self.any.taken() + self.proven.taken(), limit: 2 * OPERATIONS }
    }

    /// Counts a request that is under way.
    pub(crate) fn begin(&self) -> Active {
        Active::new(&self.active)
    }

    /// Counts a stream of events that a client has opened.
    pub(crate) fn open(&self, answer: Answer) -> Active {
        let [server, transport] = of_server(&self.server, &self.transport);
        let kind = KeyValue::new("connection_type", "sse");
        let streams = self.streams.get_or_init(|| self.connections.bind(&[kind, server.clone(), transport.clone()]));
        self.requests.add(
            1,
            &[
                KeyValue::new("mcp_method", "sse_connection"),
                KeyValue::new("method", answer.method),
                server,
                KeyValue::new("status", answer.outcome()),
                KeyValue::new("status_code", answer.status.as_str().to_owned()),
                transport,
            ],
        );
        Active::new(streams)
    }

    /// Records a request of `operation` that has ended.
    pub(crate) fn record(&self, operation: &Operation, answer: Answer, took: Duration) {
        let Series { requests, seconds, operation_seconds, tool_calls } = &*operation.series(self, answer);
        let took = took.as_secs_f64();
        requests.add(1);
        seconds.record(took);
        if let Some(operation_seconds) = operation_seconds {
            operation_seconds.record(took);
        }
        if let Some(tool_calls) = tool_calls {
            tool_calls.add(1);
        }
    }
}

fn of_server(server: &Arc<str>, transport: &Arc<str>) -> [KeyValue; 2] {
    [KeyValue::new("server", Arc::clone(server)), KeyValue::new("transport", Arc::clone(transport))]
}

/// A version of HTTP, as attributes tell it.
pub(crate) fn version_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

/// The beginning of a client's text.
pub(crate) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or(text)
}

// === impl Operation ===

impl Operation {
    fn new(method: Option<&str>, resource: &str, share: Option<Share>) -> Self {
        Self { method: method.map(Into::into), resource: resource.into(), answers: RwLock::default(), _share: share }
    }

    fn series(&self, instruments: &Instruments, answer: Answer) -> Arc<Series> {
        let find = |answers: &[(Answer, Arc<Series>)]| {
            answers.iter().find(|(known, _)| *known == answer).map(|(_, series)| Arc::clone(series))
        };
        if let Some(series) = find(&self.answers.read().unwrap_or_else(PoisonError::into_inner)) {
            return series;
        }
        let series = Arc::new(self.bind(instruments, answer));
        let mut answers = self.answers.write().unwrap_or_else(PoisonError::into_inner);
        if answers.len() < ANSWERS {
            answers.push((answer, Arc::clone(&series)));
        }
        series
    }

    /// Finds the series of these labels, which are sorted as the SDK keeps them.
    fn bind(&self, instruments: &Instruments, answer: Answer) -> Series {
        let Instruments { requests, seconds, tool_calls, operation_seconds, network, .. } = instruments;
        let [server, transport] = of_server(&instruments.server, &instruments.transport);
        let outcome = KeyValue::new("status", answer.outcome());
        let resource = |key: &'static str| KeyValue::new(key, Arc::clone(&self.resource));
        let method = |key: &'static str, method: &Arc<str>| KeyValue::new(key, Arc::clone(method));
        let labels = [
            self.method
                .as_ref()
                .map_or_else(|| KeyValue::new("mcp_method", "unknown"), |name| method("mcp_method", name)),
            resource("mcp_resource_id"),
            KeyValue::new("method", answer.method),
            server.clone(),
            outcome.clone(),
            KeyValue::new("status_code", answer.status.as_str().to_owned()),
            transport,
        ];
        let is_call = self.method.as_deref() == Some("tools/call");
        let operation_seconds = self.method.as_ref().map(|name| {
            let mut labels = Vec::with_capacity(8);
            labels.extend(answer.error_type().map(|kind| KeyValue::new("error.type", kind)));
            match &**name {
                "tools/call" => {
                    labels
                        .extend([KeyValue::new("gen_ai.operation.name", "execute_tool"), resource("gen_ai.tool.name")]);
                }
                "prompts/get" => labels.push(resource("gen_ai.prompt.name")),
                _ => {}
            }
            labels.extend([KeyValue::new("jsonrpc.protocol.version", "2.0"), method("mcp.method.name", name)]);
            labels.extend(network.attributes(answer.version));
            operation_seconds.bind(&labels)
        });
        Series {
            requests: requests.bind(&labels),
            seconds: seconds.bind(&labels),
            operation_seconds,
            tool_calls: is_call.then(|| tool_calls.bind(&[server, outcome, resource("tool")])),
        }
    }
}

// === impl Answer ===

impl Answer {
    /// The answer with this status to a request with this method and version.
    pub(crate) fn new(method: &Method, version: Version, status: StatusCode) -> Self {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::DELETE => "DELETE",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            Method::PATCH => "PATCH",
            Method::PUT => "PUT",
            _ => OTHER,
        };
        Self { method, version: version_name(version), status }
    }

    fn outcome(self) -> &'static str {
        if self.status.as_u16() >= 400 { "error" } else { "success" }
    }

    /// The type of a failure of the server's: the status.
    pub(crate) fn error_type(self) -> Option<String> {
        (self.status.as_u16() >= 500).then(|| self.status.as_str().to_owned())
    }
}

// === impl Network ===

impl Network {
    fn of(transport: &str) -> Self {
        if transport == "stdio" {
            Self { transport: "pipe", protocol: None }
        } else {
            Self { transport: "tcp", protocol: Some("http") }
        }
    }

    /// Its attributes, where clients speak this version of the protocol.
    pub(crate) fn attributes(self, version: &'static str) -> impl Iterator<Item = KeyValue> {
        let protocol = self.protocol.map(|name| {
            [KeyValue::new("network.protocol.name", name), KeyValue::new("network.protocol.version", version)]
        });
        protocol.into_iter().flatten().chain([KeyValue::new("network.transport", self.transport)])
    }
}

// === impl Active ===

impl Active {
    fn new(count: &BoundUpDownCounter<i64>) -> Self {
        count.add(1);
        Self(count.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// Returns the resource of series, which is empty for tasks: each has a name of its own.
pub(crate) fn resource<'a>(method: &str, name: Option<Cow<'a, str>>) -> Cow<'a, str> {
    name.filter(|_| !method.starts_with("tasks/")).unwrap_or_default()
}
