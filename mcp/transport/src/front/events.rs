//! An event stream as the body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use mcp_http::BoxError;
use mcp_wire::sse;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};

use crate::mux::{Message, Waiting};

const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How often progress may renew a deadline.
const RENEWALS: u32 = 10;

/// The frame that carries one message.
pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    const HEAD: &[u8] = b"event: message\ndata: ";
    let mut frame = Vec::with_capacity(HEAD.len() + message.len() + 2);
    frame.extend_from_slice(HEAD);
    frame.extend_from_slice(message);
    frame.extend_from_slice(b"\n\n");
    frame
}

/// Messages of a queue as events until the queue ends. `held` lives as long as the client listens.
pub(super) struct Events<T> {
    messages: mpsc::Receiver<Message>,
    /// When to send a comment that keeps the connection open. `None` where another stream does, of which this is a part.
    keep_alive: Option<Interval>,
    deadline: Option<Deadline>,
    held: T,
}

/// When a stream is given up unless something comes, and what is said then.
pub(super) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    timeout: Duration,
    latest: Instant,
    last_words: Bytes,
}

impl Deadline {
    pub(super) fn new(timeout: Duration, last_words: Bytes) -> Self {
        let latest = Instant::now() + timeout * RENEWALS;
        Self { sleep: Box::pin(tokio::time::sleep(timeout)), timeout, latest, last_words }
    }

    fn renew(&mut self) {
        self.sleep.as_mut().reset((Instant::now() + self.timeout).min(self.latest));
    }
}

impl<T> Events<T> {
    pub(super) fn new(messages: mpsc::Receiver<Message>, deadline: Option<Deadline>, held: T) -> Self {
        let mut keep_alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { messages, keep_alive: Some(keep_alive), deadline, held }
    }

    /// The messages about one call, as a part of a stream.
    pub(super) fn part(messages: mpsc::Receiver<Message>, deadline: Deadline, held: T) -> Self {
        Self { messages, keep_alive: None, deadline: Some(deadline), held }
    }
}

impl<T: TimedOut + Unpin> HttpBody for Events<T> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(message) = this.messages.poll_recv(cx) {
            if let Some(deadline) = &mut this.deadline {
                deadline.renew();
            }
            return Poll::Ready(message.map(|message| {
                let frame = frame(&message.bytes);
                Ok(Frame::data(message.becomes(frame)))
            }));
        }
        if let Some(deadline) = &mut this.deadline
            && deadline.sleep.as_mut().poll(cx).is_ready()
        {
            this.held.timed_out();
            // The queue is empty and now closed, so the stream ends after these words.
            this.messages.close();
            return Poll::Ready(Some(Ok(Frame::data(frame(&deadline.last_words).into()))));
        }
        let Some(keep_alive) = &mut this.keep_alive else { return Poll::Pending };
        ready!(keep_alive.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(sse::KEEP_ALIVE.as_bytes())))))
    }
}

/// What a stream holds for its client hears of a deadline that passed.
pub(super) trait TimedOut {
    fn timed_out(&mut self) {}
}

impl TimedOut for Waiting {
    fn timed_out(&mut self) {
        self.leaving_cancels = true;
    }
}

/// A stream that belongs to no call.
pub(super) struct NoCall;

impl TimedOut for NoCall {}
