//! `audit`: one line of JSON for each request (toolhive-runner §2.6, toolhive-0.63 §10).
//!
//! The lines go to standard output, where the proxy writes nothing else, or to a file. A thread of its own writes them: an output that is
//! full or blocked costs lines, which are counted, and never a call.

mod delegation;
mod event;
mod line;
mod text;
mod writer;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use jiff::Timestamp;
use mcp_http::Body;
use mcp_http::file::rooted;
use mcp_middleware::{
    BuildContext, BuildError, End, Exchange, Finding, Middleware, Next, Observation, RequestContext, Running, Shadows,
    client_network,
};
use mcp_runconfig::AuditParameters;
use mcp_store::Client;
use tokio::runtime::Handle;
use tokio::time::timeout;

use self::event::{Event, Settings, is_type};
use self::writer::{Output, Writer};

/// The bytes of an answer in which an error of JSON-RPC is looked for.
const LOOKED_AT: usize = 2 << 10;

/// The most bytes of a message or an answer that an event has, whatever the document says: answers under way hold so many.
const MAX_DATA: usize = 64 << 10;
thread_local! {
    /// The memory for a line, kept for the next one.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The time that the output may take for the last events.
const LAST: Duration = Duration::from_secs(2);

/// Writes an event for each request, whoever answered it.
pub(crate) struct Audit(
    /// `None` where the document turns audit off.
    Option<Events>,
);

/// The events of a proxy.
struct Events {
    settings: Arc<Settings>,
    /// The types of events that are written; empty means all.
    types: Vec<String>,
    excluded: Vec<String>,
    writer: Arc<Writer>,
    /// The events that wait for what shadows find.
    waiting: Running,
}

/// The event of a request under way.
struct Pending {
    event: Event,
    client: Client,
    writer: Arc<Writer>,
    shadows: Option<Arc<Shadows>>,
    waiting: Running,
}

impl Audit {
    /// Opens the log file, and starts the thread that writes.
    pub(crate) async fn new(parameters: AuditParameters, context: BuildContext) -> Result<Self, BuildError> {
        context.check_single()?;
        let AuditParameters { config_data, component, transport_type, .. } = parameters;
        let config = config_data.unwrap_or_default();
        if !config.is_on() {
            return Ok(Self(None));
        }
        for (member, types) in [("eventTypes", &config.event_types), ("excludeEventTypes", &config.exclude_event_types)]
        {
            if let Some(unknown) = types.iter().find(|name| !is_type(name)) {
                let fix = "write a type of events, such as mcp_tool_call";
                let member = format!("parameters.config_data.{member}");
                return Err(context.error(&member, format!("{unknown:?} is no type of event"), fix));
            }
        }
        let output = if config.log_file.is_empty() {
            Output::stdout().map_err(|problem| context.error("parameters.config_data.logFile", problem, "name a file"))
        } else {
            let fail = |problem| {
                let fix = "name a file in a directory that the proxy may write to, or leave it out for standard output";
                context.error("parameters.config_data.logFile", problem, fix)
            };
            match rooted(&config.log_file, context.settings.files_root.as_deref()) {
                Some(path) => Output::file(path).await.map_err(fail),
                None => Err(fail(format!("{:?} is not an absolute path", config.log_file))),
            }
        }?;
        let settings = Settings {
            component: [component, config.component].into_iter().find(|name| !name.is_empty()),
            transport: if transport_type.is_empty() { context.settings.transport.clone() } else { transport_type },
            with_request: config.include_request_data,
            with_response: config.include_response_data,
            detects_errors: config.detect_application_errors,
            longest: usize::try_from(config.max_data_size).unwrap_or(usize::MAX).min(MAX_DATA),
            depth: usize::try_from(config.max_delegation_depth).unwrap_or(usize::MAX),
        };
        Ok(Self(Some(Events {
            settings: Arc::new(settings),
            types: config.event_types,
            excluded: config.exclude_event_types,
            writer: Arc::new(Writer::start(output, &context.settings.metrics)),
            waiting: Running::default(),
        })))
    }
}

impl Events {
    fn wants(&self, kind: &str) -> bool {
        let lists = |types: &[String]| types.iter().any(|name| name == kind);
        (self.types.is_empty() || lists(&self.types)) && !lists(&self.excluded)
    }
}

impl Middleware for Audit {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.call(request)
    }

    fn observes(&self) -> Option<usize> {
        let Events { settings, .. } = self.0.as_ref()?;
        let data = if settings.with_response { settings.longest } else { 0 };
        let looked_at = if settings.detects_errors { LOOKED_AT } else { 0 };
        Some(data.max(looked_at))
    }

    fn observe(&self, exchange: &Exchange<'_>) -> Option<Box<dyn Observation>> {
        let events = self.0.as_ref()?;
        let event = Event::of(exchange, &events.settings, |kind| events.wants(kind))?;
        let network = || Client::Network(client_network(Some((exchange.client, 0).into())));
        let client = exchange.context.map_or_else(network, RequestContext::client);
        let (writer, waiting) = (Arc::clone(&events.writer), events.waiting.clone());
        let shadows = exchange.context.and_then(RequestContext::shadows);
        Some(Box::new(Pending { event, client, writer, shadows, waiting }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(Events { writer, waiting, .. }) = &self.0 {
                let _ = timeout(LAST, waiting.none()).await;
                writer.close(LAST).await;
            }
        })
    }
}

impl Pending {
    fn write(&self, end: &End<'_>, ended: Timestamp) {
        let mut findings = self.shadows.as_ref().map(|shadows| shadows.findings()).unwrap_or_default();
        findings.retain(Finding::refuses);
        LINE.with_borrow_mut(|line| {
            line.clear();
            line.shrink_to(MAX_DATA);
            self.event.line(end, ended, &findings, line);
            self.writer.write(&self.client, line);
        });
    }
}

impl Observation for Pending {
    /// Shadows may be at work after the end of the request, whose event waits for them.
    fn ended(self: Box<Self>, end: &End<'_>) {
        let ended = Timestamp::now();
        let (Some(shadows), Ok(runtime)) = (self.shadows.clone(), Handle::try_current()) else {
            return self.write(end, ended);
        };
        if shadows.are_done() {
            return self.write(end, ended);
        }
        let (answer, End { complete, left, sent, took, .. }) = (end.answer.to_vec(), *end);
        let waiting = self.waiting.begin();
        runtime.spawn(async move {
            shadows.done().await;
            self.write(&End { complete, left, answer: &answer, sent, took }, ended);
            drop(waiting);
        });
    }
}
