//! The chain: middleware in their order around a transport.

use std::fmt;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use mcp_http::{Body, BoxService, full};
use mcp_runconfig::chain::MAX_BODY_LIMIT;
use mcp_store::Bound;
use mcp_wire::{MessageError, OwnedMessage};

use crate::bodies::Bodies;
use crate::context::{RequestContext, describe};
use crate::door;
use crate::exchange::{Exchange, Observation};
use crate::response_filter::{Refusal, filter_response, looked_at};

/// One middleware of a chain.
pub trait Middleware: Send + Sync {
    /// Answers the request itself or hands it on.
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>>;

    /// Logs what an operator should know of it. Called once, when nothing can keep the proxy from starting any more.
    fn announce(&self) {}

    /// Ends what it has begun, such as writing what it holds. Called once, when the last request has been answered.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    /// Answers a request for a document of its own, below `/.well-known/`, outside of the chain; `None` where it has none there.
    fn document(&self, _method: &Method, _path: &str, _headers: &HeaderMap) -> Option<Response<Body>> {
        None
    }

    /// The bytes at the beginning of each answer that an observation is to see; `None` where it observes nothing.
    fn observes(&self) -> Option<usize> {
        None
    }

    /// Looks at a request, wherever it was refused or answered, when the head of the answer is known. It must not wait. What it returns is
    /// told of the end of the answer.
    fn observe(&self, _exchange: &Exchange<'_>) -> Option<Box<dyn Observation>> {
        None
    }

    /// Whether it reads messages ([`RequestContext::read`]). The chain then refuses beforehand what could carry a message past it.
    fn reads_messages(&self) -> bool {
        false
    }

    /// Whether it judges messages, or filters the answers to them. Requests to paths that are open pass it by, and a proxy with such a
    /// middleware serves no other paths beside its MCP endpoints.
    fn judges_messages(&self) -> bool {
        false
    }

    /// The longest request body that it lets pass, in bytes; `None` when it does not mind. [`MAX_BODY_LIMIT`] holds in any case.
    fn body_limit(&self) -> Option<usize> {
        None
    }

    /// The bounds of its own that callers share.
    fn bounds(&self) -> Vec<Bound> {
        Vec::new()
    }
}

/// Middleware, the first outermost, to be put around a transport.
#[derive(Clone)]
pub struct Chain {
    middleware: Arc<[Box<dyn Middleware>]>,
    kinds: Arc<[String]>,
    bodies: Arc<Bodies>,
    /// The limit of request bodies that was asked for, in bytes.
    asked_limit: usize,
    reads_messages: bool,
    /// The bytes of each answer that is observed; `None` where nobody observes.
    observed: Option<usize>,
}

/// The rest of the chain.
pub struct Next<'a> {
    middleware: &'a [Box<dyn Middleware>],
    context: &'a Arc<RequestContext>,
    transport: &'a BoxService,
}

// === impl Chain ===

impl Chain {
    /// A chain of these middleware; `default_limit` bounds request bodies where none of them does, [`MAX_BODY_LIMIT`] in any case; they must arrive within `time`.
    pub(crate) fn new(
        middleware: Vec<Box<dyn Middleware>>,
        kinds: Vec<String>,
        default_limit: usize,
        time: Duration,
    ) -> Self {
        let limit = middleware.iter().filter_map(|middleware| middleware.body_limit()).min().unwrap_or(default_limit);
        let reads_messages = middleware.iter().any(|middleware| middleware.reads_messages());
        let observed = middleware.iter().filter_map(|middleware| middleware.observes()).max();
        Self {
            middleware: middleware.into(),
            kinds: kinds.into(),
            bodies: Arc::new(Bodies::new(limit, time)),
            asked_limit: limit,
            reads_messages,
            observed,
        }
    }

    /// Logs what an operator should know of the chain. Call it once nothing can fail any more: a proxy that does not
    /// start says why in one line.
    pub fn announce(&self) {
        if self.asked_limit as u64 > MAX_BODY_LIMIT {
            let (asked, limit) = (self.asked_limit, MAX_BODY_LIMIT);
            tracing::warn!(
                asked,
                limit,
                "the limit of request bodies is above the proxy's bound, which holds in its place"
            );
        }
        self.middleware.iter().for_each(|middleware| middleware.announce());
    }

    /// Whether a middleware judges messages: the proxy has to serve MCP endpoints alone.
    pub fn judges_messages(&self) -> bool {
        self.middleware.iter().any(|middleware| middleware.judges_messages())
    }

    /// Ends what the middleware have begun, the innermost first. Call it when the last request has been answered.
    pub async fn close(&self) {
        for middleware in self.middleware.iter().rev() {
            middleware.close().await;
        }
    }

    /// The answer of a middleware to a request for a document of its own, outside of the chain.
    pub fn document(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
        self.middleware.iter().find_map(|middleware| middleware.document(method, path, headers))
    }

    /// The bytes at the beginning of each answer that observations are to see; `None` where nobody observes.
    pub fn observes(&self) -> Option<usize> {
        self.observed
    }

    /// Shows a request to the middleware that observe.
    pub fn observe(&self, exchange: &Exchange<'_>) -> Vec<Box<dyn Observation>> {
        self.middleware.iter().filter_map(|middleware| middleware.observe(exchange)).collect()
    }

    /// The bounds that callers share here, those of the middleware among them.
    pub fn bounds(&self) -> impl Iterator<Item = Bound> {
        self.bodies.bounds().into_iter().chain(self.middleware.iter().flat_map(|middleware| middleware.bounds()))
    }

    /// The context of a request that came from `peer`.
    pub fn context(&self, peer: SocketAddr) -> Arc<RequestContext> {
        self.context_on(peer, false)
    }

    /// The context of a request to an open path: middleware that read or judge messages are left out for it, and JSON-RPC is refused.
    pub fn open_context(&self, peer: SocketAddr) -> Arc<RequestContext> {
        self.context_on(peer, true)
    }

    fn context_on(&self, peer: SocketAddr, open: bool) -> Arc<RequestContext> {
        Arc::new(RequestContext::new(peer, Arc::clone(&self.bodies), open, self.observed.is_some()))
    }

    /// Answers a request: the middleware in their order, and `transport` innermost, which finds the context by
    /// [`RequestContext::of`].
    pub async fn serve(
        &self,
        context: &Arc<RequestContext>,
        mut request: Request<Body>,
        transport: &BoxService,
    ) -> Response<Body> {
        // In front of all middleware: what is refused here no middleware has seen, so there is none to read a denial in the context.
        if self.reads_messages
            && !context.is_open()
            && let Some(refusal) = door::refuse(&request)
        {
            return refusal;
        }
        request.extensions_mut().insert(Arc::clone(context));
        let response = Next { middleware: &self.middleware, context, transport }.call(request).await;
        context.release();
        response
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

// === impl Next ===

impl<'a> Next<'a> {
    /// The context of the request. It may be kept, and read when the rest of the chain has answered.
    pub fn context(&self) -> &'a Arc<RequestContext> {
        self.context
    }

    /// Asks the MCP server something else for the same caller, through the rest of the chain: `message`, under a `head` that is made true of it. `prepare` may
    /// register filters of its answer. Returns the answer and the context of that request. The request itself can still be handed on.
    ///
    /// # Errors
    /// `message` is none that every parser reads alike, or the request itself carries none.
    pub async fn ask(
        &self,
        head: &Parts,
        message: Bytes,
        prepare: impl FnOnce(&RequestContext) + Send,
    ) -> Result<(Arc<RequestContext>, Response<Body>), MessageError> {
        let before = self.context.message().ok_or(MessageError::Envelope("there is no message to ask beside"))?;
        let after = OwnedMessage::read(message)?;
        let mut head = head.clone();
        describe(&mut head.headers, &before, &after)?;
        let body = full(after.body().clone());
        let context = self.context.aside(after);
        prepare(&context);
        head.extensions.insert(Arc::clone(&context));
        let next = Next { middleware: self.middleware, context: &context, transport: self.transport };
        let response = next.call(Request::from_parts(head, body)).await;
        Ok((context, response))
    }

    /// Runs the rest of the chain. The transport gets the body whole, whether a middleware has read it or not.
    pub fn call(self, request: Request<Body>) -> BoxFuture<'a, Response<Body>> {
        let Self { middleware, context, transport } = self;
        match middleware.split_first() {
            Some((first, middleware)) if context.is_open() && (first.reads_messages() || first.judges_messages()) => {
                Next { middleware, context, transport }.call(request)
            }
            Some((first, middleware)) => first.call(request, Next { middleware, context, transport }),
            None if context.is_unread(&request) || context.reads_answer() => {
                Box::pin(answer(context, request, transport))
            }
            None => transport.call(request),
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("left", &self.middleware.len()).finish_non_exhaustive()
    }
}

/// The answer of the transport, filtered as middleware asked on the way in.
///
/// Messages of the MCP server come from the transport alone, so that this is the one place that sees them all. What a middleware answers itself, a
/// refusal or for a panic, is not among them and reaches the client as it is.
async fn answer(context: &RequestContext, mut request: Request<Body>, transport: &BoxService) -> Response<Body> {
    let (mut filters, look) = (context.take_filters(), context.take_look());
    if context.is_unread(&request) {
        request = match context.read_for_transport(request).await {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
    }
    if filters.is_empty() && look.is_none() {
        return transport.call(request).await;
    }
    // A filter reads no content coding, and no part of a list: in its middle nobody can tell that it is one.
    for header in [ACCEPT_ENCODING, RANGE, IF_RANGE] {
        request.headers_mut().remove(header);
    }
    let response = transport.call(request).await;
    let response = match look {
        Some(look) => looked_at(response, look, context.message(), context.session()),
        None => response,
    };
    if filters.is_empty() {
        return response;
    }
    filters.session = context.session();
    let id = context.message().as_ref().and_then(OwnedMessage::id).map(|id| id.raw().into());
    let (response, refusal) = filter_response(filters, response, id, context.answer(), None).await;
    if let Some(Refusal { middleware, reason }) = refusal {
        context.deny(middleware, reason);
    }
    response
}
