//! The record of a request, for the middleware that observe.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::{Body as _, Frame};
use mcp_http::{Body, BoxError};
use mcp_middleware::{Asked, Chain, End, Exchange, Observation, RequestContext};

/// A request under way, where middleware observe. It ends when it is dropped: the answer is complete, or nobody wants it any more.
pub(crate) struct Record {
    chain: Chain,
    asked: Arc<Asked>,
    client: IpAddr,
    is_stream: bool,
    /// The request's context, once it has come to the chain.
    pub(crate) context: Option<Arc<RequestContext>>,
    /// The guard in front of the chain that refused it.
    pub(crate) refused_by: Option<&'static str>,
    /// The parts that middleware keep of it, once the head of the answer is known.
    observations: Option<Vec<Box<dyn Observation>>>,
    /// The bytes of the answer that are kept at most.
    limit: usize,
    answer: Vec<u8>,
    sent: u64,
    complete: bool,
    /// Whether the answer broke off.
    broken: bool,
}

impl Record {
    /// The record of a request of `client`; `None` where nobody observes.
    pub(crate) fn new(chain: &Chain, asked: Asked, client: IpAddr, is_stream: bool) -> Option<Self> {
        Some(Self {
            limit: chain.observes()?,
            chain: chain.clone(),
            asked: Arc::new(asked),
            client,
            is_stream,
            context: None,
            refused_by: None,
            observations: None,
            answer: Vec::new(),
            sent: 0,
            complete: false,
            broken: false,
        })
    }

    /// The answer begins. A stream's record ends here: the stream itself ends when somebody leaves.
    pub(crate) fn answered(mut self, status: StatusCode, body: &Body) -> Option<Self> {
        // A request for no endpoint opens no stream, whatever it asks for.
        self.is_stream &= self.refused_by.is_none();
        self.observe(Some(status));
        // The request and its message may be as long as a body, and the answer may take long.
        self.context = None;
        self.complete = self.is_stream || self.asked.method == Method::HEAD || body.is_end_stream();
        (!self.is_stream).then_some(self)
    }

    /// The request is refused before the chain, with this answer.
    pub(crate) fn refused(mut self, status: StatusCode) {
        self.observe(Some(status));
        self.complete = true;
    }

    /// A part of the answer goes to the client, `None` at its end; `ended` says that it is the last.
    pub(crate) fn sends(&mut self, frame: Option<Result<&Frame<Bytes>, &BoxError>>, ended: bool) {
        self.broken |= matches!(frame, Some(Err(_)));
        if let Some(data) = frame.and_then(Result::ok).and_then(Frame::data_ref) {
            let room = self.limit.saturating_sub(self.answer.len()).min(data.len());
            self.answer.extend_from_slice(&data[..room]);
            self.sent += data.len() as u64;
        }
        self.complete |= ended && !self.broken;
    }

    fn observe(&mut self, status: Option<StatusCode>) {
        let exchange = Exchange {
            asked: &self.asked,
            client: self.client,
            context: self.context.as_deref(),
            refused_by: self.refused_by,
            status,
            is_stream: self.is_stream,
        };
        self.observations = Some(self.chain.observe(&exchange));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.observations.is_none() {
            self.observe(None);
        }
        let Self { complete, broken, ref answer, sent, .. } = *self;
        let end = End { complete, left: !complete && !broken, answer, sent, took: self.asked.started.elapsed() };
        self.observations.take().into_iter().flatten().for_each(|observation| observation.ended(&end));
    }
}
