//! Traces and metrics: the middleware `telemetry` (toolhive-runner §2.12).
//!
//! It sees the requests that come to its place in the chain. Those refused outside of it are in no span and in no metric of its.
//!
//! ```
//! use mcp_middleware::Registry;
//!
//! let mut registry = Registry::default();
//! mcp_telemetry::register(&mut registry);
//! assert!(registry.kinds().eq(["telemetry"]));
//! ```

mod claim;
mod export;
mod instruments;
mod reader;
mod span;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use mcp_http::{Body, BoxError, is_type};
use mcp_middleware::{BuildContext, BuildError, Middleware, Next, Registry, RequestContext, Variables, target_name};
use mcp_runconfig::{TELEMETRY, TelemetryParameters};
use mcp_store::Bound;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracer;
use tokio::time::timeout;

use self::claim::{Claim, proves};
use self::export::Pipeline;
use self::instruments::{Active, Answer, Instruments, Operation, resource};
use self::reader::Reader;
use self::span::{Spans, Traced};

/// The status, in metrics, of a request whose client left before there was an answer.
const CLIENT_LEFT: u16 = 499;

/// The time that the last spans may take for what shadows find.
const LAST: Duration = Duration::from_secs(2);

/// Adds the middleware `telemetry`.
pub fn register(registry: &mut Registry) {
    registry.register(TELEMETRY, Telemetry::new);
}

/// Records each request.
struct Telemetry {
    /// `None` where the document turns everything off.
    recorder: Option<Recorder>,
    /// Takes the records on.
    pipeline: Option<Pipeline>,
}

/// The instruments and the spans of a proxy.
struct Recorder {
    instruments: Arc<Instruments>,
    /// `None` without a collector for spans.
    spans: Option<Arc<Spans>>,
}

/// A request under way.
struct Recording {
    instruments: Arc<Instruments>,
    operation: Arc<Operation>,
    method: Method,
    version: Version,
    /// Whether it asks for the stream of a session (HTTP with server-sent events).
    opens_session: bool,
    started: Instant,
    /// `None` until the answer begins.
    status: Option<StatusCode>,
    sent: u64,
    traced: Option<Box<Traced>>,
    /// The name in it that has no series of its own.
    claim: Option<Claim>,
}

/// Records a request when it is dropped: the answer is complete, or nobody wants it any more.
struct Ending(Option<Recording>);

/// An answer whose end is recorded.
struct Recorded {
    body: Body,
    ending: Ending,
    _active: Active,
}

// === impl Telemetry ===

impl Telemetry {
    async fn new(mut parameters: TelemetryParameters, context: BuildContext) -> Result<Self, BuildError> {
        context.check_single()?;
        if !parameters.config.is_on() {
            return Ok(Self { recorder: None, pipeline: None });
        }
        let TelemetryParameters { server_name, transport, .. } = &mut parameters;
        for (name, fallback) in [(server_name, &context.settings.server_name), (transport, &context.settings.transport)]
        {
            if name.is_empty() {
                name.clone_from(fallback);
            }
        }
        let scrape = parameters.config.enable_prometheus_metrics_path.then(Reader::default);
        let pipeline = export::start(&parameters.config, &context, scrape.clone()).await?;
        if let Some(scrape) = scrape {
            context.settings.metrics.register_collector(scrape);
        }
        let variables = context.settings.variables;
        let recorder = Recorder::new(&pipeline.meters, pipeline.tracer.clone(), &parameters, variables);
        Ok(Self { recorder: Some(recorder), pipeline: Some(pipeline) })
    }
}

impl Recorder {
    fn new(
        meters: &SdkMeterProvider,
        tracer: Option<SdkTracer>,
        parameters: &TelemetryParameters,
        variables: Variables,
    ) -> Self {
        let instruments = Instruments::new(meters, &parameters.server_name, &parameters.transport);
        let spans = tracer.map(|tracer| Arc::new(Spans::new(tracer, parameters, instruments.network(), variables)));
        Self { instruments: Arc::new(instruments), spans }
    }

    /// The request comes. Its span's context is in its headers from here on.
    fn begin(&self, request: &mut Request<Body>, context: &Arc<RequestContext>) -> Ending {
        let started = Instant::now();
        let message = context.message();
        let method = message.as_ref().and_then(|message| message.method());
        let name = message.as_ref().and_then(target_name);
        let resource = resource(method.unwrap_or_default(), name);
        let (operation, claim) = self.instruments.operation(method, &resource, || context.client());
        let called = message.as_ref().filter(|_| method.is_some()).map(|message| (message, &*resource));
        let traced = self.spans.as_ref().and_then(|spans| spans.start(request, context, called, started));
        Ending(Some(Recording {
            instruments: Arc::clone(&self.instruments),
            operation,
            method: request.method().clone(),
            version: request.version(),
            opens_session: request.method() == Method::GET && request.uri().path().ends_with("/sse"),
            started,
            status: None,
            sent: 0,
            traced: traced.map(Box::new),
            claim,
        }))
    }
}

impl Middleware for Telemetry {
    fn call<'a>(&'a self, mut request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let Some(recorder) = &self.recorder else { return next.call(request) };
        let ending = recorder.begin(&mut request, next.context());
        let active = recorder.instruments.begin();
        let answer = next.call(request);
        Box::pin(async move { ending.answered(answer.await, active) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(spans) = self.recorder.as_ref().and_then(|recorder| recorder.spans.as_ref()) {
                let _ = timeout(LAST, spans.ended()).await;
            }
            if let Some(pipeline) = &self.pipeline {
                pipeline.close().await;
            }
        })
    }

    fn bounds(&self) -> Vec<Bound> {
        self.recorder.iter().map(|recorder| recorder.instruments.bound()).collect()
    }
}

// === impl Recording ===

impl Recording {
    /// The stream of a session begins: it is counted, and its span ends.
    fn opened(self) -> Active {
        let answer = self.answer();
        if let Some(traced) = self.traced {
            traced.opened(answer.version);
        }
        self.instruments.open(answer)
    }

    /// These bytes of the answer are sent.
    fn sends(&mut self, data: &[u8]) {
        self.sent += data.len() as u64;
        let is_proven = self.claim.as_ref().and_then(|_| proves(data));
        if is_proven.is_some()
            && let Some(claim) = self.claim.take()
            && is_proven == Some(true)
        {
            self.instruments.prove(&claim);
        }
    }

    /// The request has ended.
    fn ended(self) {
        let (answer, took) = (self.answer(), self.started.elapsed());
        self.instruments.record(&self.operation, answer, took);
        if let Some(traced) = self.traced {
            traced.ended(self.status.map(|_| answer), self.sent, took);
        }
    }

    fn answer(&self) -> Answer {
        let left = || StatusCode::from_u16(CLIENT_LEFT).unwrap_or(StatusCode::BAD_REQUEST);
        Answer::new(&self.method, self.version, self.status.unwrap_or_else(left))
    }
}

// === impl Ending ===

impl Ending {
    /// The answer begins. Of a stream, the record ends here: the stream itself ends when somebody leaves.
    fn answered(mut self, response: Response<Body>, mut active: Active) -> Response<Body> {
        let Some(mut recording) = self.0.take() else { return response };
        recording.status = Some(response.status());
        if let Some(traced) = &mut recording.traced {
            traced.answered();
        }
        let is_stream = recording.method == Method::GET
            && response.status().is_success()
            && is_type(response.headers(), "text/event-stream");
        match (is_stream, recording.opens_session) {
            (true, true) => active = recording.opened(),
            (true, false) => recording.ended(),
            (false, _) => self.0 = Some(recording),
        }
        if response.body().is_end_stream() {
            return response;
        }
        response.map(|body| Body::new(Recorded { body, ending: self, _active: active }))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(recording) = self.0.take() {
            recording.ended();
        }
    }
}

// === impl Recorded ===

impl HttpBody for Recorded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(recording) = &mut self.ending.0
            && let Poll::Ready(Some(Ok(frame))) = &frame
        {
            recording.sends(frame.data_ref().map_or(&[][..], |data| data));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
