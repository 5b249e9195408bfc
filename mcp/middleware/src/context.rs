//! The context of a request: it travels beside the request, inwards and outwards.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Extensions, Method, Request, Response, StatusCode};
use http_body::Body as _;
use mcp_http::{Body, ReadError, Share, full, json, text};
use mcp_runconfig::chain;
use mcp_runconfig::webhook;
use mcp_store::{Client, Principal};
use mcp_wire::{Kind, List, Message, MessageError, OwnedMessage, headers};
use serde_json::{Map, Value};

use crate::bodies::{Bodies, beside, read_message};
use crate::decisions::{Decision, Guard};
use crate::door;
use crate::fingerprint::Fingerprint;
use crate::network::client_network;
use crate::outcome::Outcome;
use crate::response_filter::{Filters, ListFilter, Look};
use crate::shadows::{Run, Shadow, Shadows};

/// The longest message that is kept for those who observe when another is put in its place, in bytes.
const OBSERVED: usize = 64 << 10;

/// The context of one request. The chain makes it at the entry, before the outermost middleware; what an inner
/// middleware adds, those outside of it see when [`Next::call`](crate::Next::call) has answered.
#[derive(Debug)]
pub struct RequestContext {
    peer: SocketAddr,
    bodies: Arc<Bodies>,
    /// Whether its path is open.
    open: bool,
    /// Whether the proxy asks for itself.
    aside: bool,
    /// Whether somebody will look at it when it has ended.
    observed: bool,
    /// Whether decisions are kept.
    keeps_decisions: AtomicBool,
    /// Whether the body has been read.
    read: AtomicBool,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    identity: Option<Arc<Identity>>,
    message: Option<OwnedMessage>,
    /// The share of the body of the memory for requests.
    share: Option<Share>,
    denial: Option<Arc<Denial>>,
    decisions: Vec<Decision>,
    shadows: Option<Arc<Shadows>>,
    /// The message that the client sent, where another one is in its place by now.
    sent: Option<OwnedMessage>,
    changed: bool,
    checks: Vec<Check>,
    filters: Filters,
    look: Option<Look>,
    session: Option<Arc<str>>,
    token: Option<Fingerprint>,
}

/// A guard's judgement of a message that another middleware put in place of the one that the guard let pass: its
/// refusal, if it refuses.
#[derive(Clone)]
struct Check(Arc<CheckMessage>);

type CheckMessage = dyn Fn(&RequestContext, &OwnedMessage) -> Option<Response<Body>> + Send + Sync;

/// A request that does not get another message. The answer to the client is the caller's, unless a guard gave one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The new message is no request or notification that every parser reads alike, or there was none before.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A guard that had let the old message pass refuses the new one: give its answer to the client.
    #[error("a guard refuses the message that was put in place of the client's")]
    Refused(Box<Response<Body>>),
}

/// The caller, as far as it is known. Tokens are never in it.
#[derive(Default)]
pub struct Identity {
    /// Whether the caller proved who it is. Where it did not, many callers may share this identity.
    pub logged_in: bool,
    /// The subject: who it is to its issuer.
    pub subject: String,
    /// The platform's id of the user; empty where there is none.
    pub platform_user_id: String,
    /// Display name; may be empty.
    pub name: String,
    /// Mail address; may be empty.
    pub email: String,
    /// Claims of the token.
    pub claims: Map<String, Value>,
    /// The cached result of [`principal`](Self::principal); empty at first.
    pub encoded: OnceLock<String>,
}

/// A refusal, as the log and the audit see it. What the client is told is in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The type of the middleware that refused, or `body` for a body that did not arrive.
    pub middleware: Cow<'static, str>,
    /// Why.
    pub reason: Cow<'static, str>,
}

// === impl RequestContext ===

impl RequestContext {
    pub(crate) fn new(peer: SocketAddr, bodies: Arc<Bodies>, open: bool, observed: bool) -> Self {
        let (keeps_decisions, read) = (AtomicBool::new(observed), AtomicBool::new(false));
        Self { peer, bodies, open, aside: false, observed, keeps_decisions, read, found: Mutex::default() }
    }

    /// The context of the request with these extensions, for what stands inside of a [`Chain`](crate::Chain).
    pub fn of(extensions: &Extensions) -> Option<&Arc<Self>> {
        extensions.get()
    }

    /// The TCP peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The holder that the request counts for, and everything that is kept for it: the principal that has logged in;
    /// before that, and where the login names none, the network of its address.
    pub fn client(&self) -> Client {
        let found = self.found();
        let login = found.identity.as_ref().filter(|identity| identity.logged_in).and_then(|identity| identity.owner());
        login.map_or_else(|| Client::Network(client_network(Some(self.peer))), Client::Principal)
    }

    /// The owner of the sessions that the request uses and opens. Everybody without an identity is one owner; an
    /// identity without issuer or subject owns none.
    pub fn owner(&self) -> Option<Principal> {
        let identity = self.identity();
        identity.map_or_else(|| Some(Principal::unauthenticated()), |identity| identity.owner())
    }

    /// The id of the session that the request names, or that its answer opens. The transport alone checks whose session
    /// it is, and lets no request that names another's reach the MCP server.
    pub fn session(&self) -> Option<Arc<str>> {
        self.found().session.clone()
    }

    /// Records the id of the session that the request names, or that its answer opens.
    pub fn in_session(&self, id: &str) {
        self.found().session = Some(id.into());
    }

    /// Whether the request is to a path that is open, and not for MCP. Middleware that read or judge messages pass it
    /// by.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether the proxy asks for itself, [beside](crate::Next::ask) a request of the caller.
    pub fn is_aside(&self) -> bool {
        self.aside
    }

    /// The caller, once a middleware has authenticated it.
    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.found().identity.clone()
    }

    /// Says who called.
    pub fn identify(&self, identity: Arc<Identity>) {
        self.found().identity = Some(identity);
    }

    /// Says who called, by the bearer token with this fingerprint.
    pub fn identify_by(&self, token: Fingerprint, identity: Arc<Identity>) {
        let mut found = self.found();
        (found.identity, found.token) = (Some(identity), Some(token));
    }

    /// The bearer token by which the caller logged in.
    pub fn token(&self) -> Option<Fingerprint> {
        self.found().token
    }

    /// The message as the request carries it now, once it was [read](Self::read): after a mutation, the mutated one.
    pub fn message(&self) -> Option<OwnedMessage> {
        self.found().message.clone()
    }

    /// The message that the client sent, where the [`message`](Self::message) is another one by now. `None` where
    /// nobody observes the chain, and for messages of more than 64 KiB.
    pub fn sent(&self) -> Option<OwnedMessage> {
        self.found().sent.clone()
    }

    /// Whether the [`message`](Self::message) is another one than the client sent.
    pub fn is_changed(&self) -> bool {
        self.found().changed
    }

    /// Keeps the [`decisions`](Self::decisions) from here on, though nobody observes the chain.
    pub fn keep_decisions(&self) {
        self.keeps_decisions.store(true, Relaxed);
    }

    /// The decisions of guards so far, in their order. Where nobody observes the chain, none before
    /// [`keep_decisions`](Self::keep_decisions).
    pub fn decisions(&self) -> Vec<Decision> {
        self.found().decisions.clone()
    }

    /// Counts the decision of a guard, which began at `started`, and keeps it for those who observe the request.
    pub fn decided(&self, guard: &Guard, outcome: Outcome, started: Instant) {
        let took = guard.count(outcome, started);
        if self.keeps_decisions.load(Relaxed) {
            self.found().decisions.push(guard.decision(outcome, started, took));
        }
    }

    /// The shadows of the request; `None` where it has none. Once it has been answered, what they find may still come.
    pub fn shadows(&self) -> Option<Arc<Shadows>> {
        self.found().shadows.clone()
    }

    /// Counts the decision of a shadow, which began at `started`, and keeps it for those who observe the request.
    pub fn decided_in_shadow(&self, shadow: &Shadow, outcome: Outcome, started: Instant) {
        self.own_shadows().decide(shadow, outcome, started);
    }

    /// A shadow is at work for the request until what this returns is dropped.
    pub fn run_in_shadow(&self) -> Run {
        self.own_shadows().run()
    }

    /// The shadows of the request, of which there is one from here on.
    pub fn own_shadows(&self) -> Arc<Shadows> {
        Arc::clone(self.found().shadows.get_or_insert_default())
    }

    /// The refusal that a middleware recorded.
    pub fn denial(&self) -> Option<Arc<Denial>> {
        self.found().denial.clone()
    }

    /// Records that the middleware of this type refuses the request, and why. The refusal that is recorded first stays.
    pub fn deny(&self, middleware: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) {
        let denial = Denial { middleware: middleware.into(), reason: reason.into() };
        self.found().denial.get_or_insert_with(|| Arc::new(denial));
    }

    /// Registers how a guard judges a message that another middleware [puts in place](Self::replace) of the one that it
    /// lets pass. A guard calls it for every message that it lets pass, whatever the message is: another may become one
    /// that it refuses.
    pub fn judge_again(&self, judge: impl Fn(&Self, &OwnedMessage) -> Option<Response<Body>> + Send + Sync + 'static) {
        self.found().checks.push(Check(Arc::new(judge)));
    }

    /// Registers how a middleware edits lists in the answer of the MCP server, whatever it answers. An error withholds
    /// the answer, and says why for the log. A middleware calls it before it hands the request on.
    ///
    /// The chain reads the answer once and parses a list once; the filter of the innermost middleware comes first.
    /// `edit` may work for long before it returns ([`ListFilter::cost`]). Its future, which may ask somebody about the
    /// entries, should do little work itself.
    pub fn filter_lists<F>(&self, filter: ListFilter, edit: impl Fn(List) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<List, &'static str>> + Send + 'static,
    {
        self.found().filters.add(filter, edit);
    }

    /// Registers a look at the answer, as the MCP server gives it. The answer passes as it is. A second
    /// look takes the first one's place.
    pub fn look_at_answer(&self, look: Look) {
        self.found().look = Some(look);
    }

    /// Registers a look at each request and notification of the MCP server in the answer, before the client gets it,
    /// with the id of the [session](Self::session). It must not wait.
    pub fn watch_messages(&self, watch: impl Fn(Option<&Arc<str>>, &Message<'_>) + Send + Sync + 'static) {
        self.found().filters.watch(watch);
    }

    /// Whether middleware registered filters, or a look.
    pub(crate) fn reads_answer(&self) -> bool {
        let found = self.found();
        !found.filters.is_empty() || found.look.is_some()
    }

    /// Takes the look out, for the one answer of the transport.
    pub(crate) fn take_look(&self) -> Option<Look> {
        self.found().look.take()
    }

    /// Takes the filters out, for the one answer of the transport.
    pub(crate) fn take_filters(&self) -> Filters {
        std::mem::take(&mut self.found().filters)
    }

    /// Reads the body of a POST and the message in it, which [`message`](Self::message) returns from then on. Does
    /// nothing when that is done, nor for requests without a message. A middleware that calls it says so in
    /// [`reads_messages`](crate::Middleware::reads_messages).
    ///
    /// # Errors
    /// The answer to a body that is no message to every parser alike, too long, too slow or broken off, or whose
    /// headers mirror another message. Give it to the client.
    pub async fn read(&self, request: Request<Body>) -> Result<Request<Body>, Response<Body>> {
        if request.method() != Method::POST || self.read.load(Relaxed) {
            return Ok(request);
        }
        let (mut head, body) = request.into_parts();
        let (body, share) = self.read_whole(body).await.map_err(|error| error.answer())?;
        let received = body.len();
        let refuse = |reason: &dyn fmt::Display, body| {
            self.deny(chain::PARSER, reason.to_string());
            json(StatusCode::BAD_REQUEST, body)
        };
        let (message, share) = read_message(body, share).await.map_err(|error| refuse(&error, error.body()))?;
        headers::check(&head.headers, message.message())
            .map_err(|mismatch| refuse(&mismatch, mismatch.body(message.id())))?;
        let body = message.body().clone();
        // A byte order mark is not part of the message.
        if body.len() != received {
            set_length(&mut head.headers, body.len());
        }
        let mut found = self.found();
        (found.message, found.share) = (Some(message), Some(share));
        drop(found);
        Ok(Request::from_parts(head, full(body)))
    }

    /// Whether there is a body that nobody has read.
    pub(crate) fn is_unread(&self, request: &Request<Body>) -> bool {
        !self.read.load(Relaxed) && !request.body().is_end_stream()
    }

    /// Reads the body of a request that no middleware has read, for the transport.
    pub(crate) async fn read_for_transport(&self, request: Request<Body>) -> Result<Request<Body>, Response<Body>> {
        let (head, body) = request.into_parts();
        if self.open && matches!(head.method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS) {
            // Some servers leave it unread, and take it for the next request.
            return Err(text(StatusCode::BAD_REQUEST, "no request with this method has a body on an open path"));
        }
        if self.open && !door::is_plain(&head.headers) {
            let message = "a body to an open path must be in UTF-8 and without a Content-Encoding";
            return Err(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let (body, share) = self.read_whole(body).await.map_err(|error| match error {
            // toolhive-0.63 §4.1: without a parser it is no JSON-RPC error.
            ReadError::Broken(_) => text(StatusCode::BAD_REQUEST, "Invalid request body"),
            error => error.answer(),
        })?;
        let (whole, is_open) = (body.clone(), self.open);
        if is_open && beside(body.len(), move || door::mentions_json_rpc(&whole)).await {
            let message =
                "JSON-RPC is refused on a path that portcullis.dev/open-paths opens; send it to an MCP endpoint";
            return Err(text(StatusCode::FORBIDDEN, message));
        }
        self.found().share = Some(share);
        Ok(Request::from_parts(head, full(body)))
    }

    async fn read_whole(&self, body: Body) -> Result<(Bytes, Share), ReadError> {
        let read = self.bodies.read(body, self.client()).await.inspect_err(|error| {
            let limit = matches!(error, ReadError::TooLong);
            self.deny(if limit { chain::BODY_LIMIT } else { "body" }, error.to_string());
        })?;
        self.read.store(true, Relaxed);
        Ok(read)
    }

    /// A share of the memory for the answer, for a filter that holds it.
    pub(crate) fn answer(&self) -> Share {
        self.bodies.answer(self.client())
    }

    /// Declares a mutation: the request with `body` in place of the message that it carries. What its headers say of
    /// the message is made true again, and guards that let the old message pass [judge](Self::judge_again) the new one.
    ///
    /// # Errors
    /// `body` is not a request or notification that every parser reads alike, no message was [read](Self::read) before,
    /// or a guard refuses the new one.
    pub async fn replace(self: &Arc<Self>, request: Request<Body>, body: Bytes) -> Result<Request<Body>, ReplaceError> {
        let before = self.message().ok_or(MessageError::Envelope("there is no message to put another in place of"))?;
        let (length, context) = (before.body().len().max(body.len()), Arc::clone(self));
        beside(length, move || context.put_in_place(&before, request, body)).await
    }

    fn put_in_place(
        &self,
        before: &OwnedMessage,
        request: Request<Body>,
        body: Bytes,
    ) -> Result<Request<Body>, ReplaceError> {
        let after = OwnedMessage::read(body)?;
        if after.kind() == Kind::Response {
            return Err(MessageError::Envelope("a request must not become a response").into());
        }
        let checks = self.found().checks.clone();
        if let Some(refusal) = checks.iter().find_map(|Check(judge)| judge(self, &after)) {
            return Err(ReplaceError::Refused(Box::new(refusal)));
        }
        let (mut head, _) = request.into_parts();
        describe(&mut head.headers, before, &after)?;
        let body = full(after.body().clone());
        let mut found = self.found();
        // The share counts one body. Those who observe read the name in a longer one no more.
        if self.observed && before.body().len() <= OBSERVED {
            found.sent.get_or_insert_with(|| before.clone());
        }
        (found.message, found.changed) = (Some(after), true);
        drop(found);
        Ok(Request::from_parts(head, body))
    }

    /// The context of another request of the same caller, which carries `message` and has passed no middleware yet.
    pub(crate) fn aside(&self, message: OwnedMessage) -> Arc<Self> {
        let context = Self { aside: true, ..Self::new(self.peer, Arc::clone(&self.bodies), false, false) };
        context.read.store(true, Relaxed);
        let (identity, token) = (self.identity(), self.token());
        *context.found() = Found { identity, token, message: Some(message), ..Found::default() };
        Arc::new(context)
    }

    /// Gives back the memory that the request's body takes: the request has been answered.
    pub(crate) fn release(&self) {
        self.found().share = None;
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Identity {
    /// The owner of sessions that the caller opens: the subject of its issuer. `None` where one of both is missing.
    pub fn owner(&self) -> Option<Principal> {
        let issuer = self.claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        let whole = !issuer.is_empty() && !self.subject.is_empty();
        whole.then(|| Principal::new(issuer, &self.subject))
    }

    /// The identity as webhooks are told of it: a [`webhook::Principal`] as JSON, made once for all its calls.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn principal(&self) -> Result<&str, serde_json::Error> {
        let Self { subject: sub, platform_user_id, name, email, claims, encoded, .. } = self;
        if let Some(principal) = encoded.get() {
            return Ok(principal);
        }
        let principal = serde_json::to_string(&webhook::Principal { sub, platform_user_id, name, email, claims })?;
        Ok(encoded.get_or_init(|| principal))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

/// Makes what headers say of the message `before` true of `after`.
pub(crate) fn describe(
    headers: &mut HeaderMap,
    before: &OwnedMessage,
    after: &OwnedMessage,
) -> Result<(), MessageError> {
    headers::update(headers, before.message(), after.message())?;
    headers.remove(TRANSFER_ENCODING);
    set_length(headers, after.body().len());
    Ok(())
}

fn set_length(headers: &mut HeaderMap, length: usize) {
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// Claims describe a person: only their names are shown.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claims: Vec<_> = self.claims.keys().collect();
        f.debug_struct("Identity").field("subject", &self.subject).field("claims", &claims).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn callers_without_a_login_do_not_take_a_principals_share() {
        let identity = |logged_in, issuer: &str, subject: &str| {
            let claims = Map::from_iter([("iss".to_owned(), json!(issuer))]);
            Identity { logged_in, subject: subject.to_owned(), claims, ..Identity::default() }
        };
        let alice = Principal::new("i", "alice");
        let network = Client::Network([10, 0, 0, 9].into());
        for (identity, owner, client) in [
            (identity(false, "i", "alice"), Some(alice.clone()), network.clone()),
            (identity(true, "i", "alice"), Some(alice.clone()), Client::Principal(alice)),
            (identity(true, "", "alice"), None, network.clone()),
            (identity(true, "i", ""), None, network.clone()),
        ] {
            let bodies = Arc::new(Bodies::new(1, Duration::from_secs(1)));
            let context = RequestContext::new(SocketAddr::from(([10, 0, 0, 9], 4711)), bodies, false, false);
            assert_eq!(context.client(), network, "before the login");
            let identity = Arc::new(identity);
            context.identify(Arc::clone(&identity));
            assert_eq!((identity.owner(), context.client()), (owner, client), "{identity:?}");
        }
    }
}
