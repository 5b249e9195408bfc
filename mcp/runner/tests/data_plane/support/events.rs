//! A session over HTTP with server-sent events, event by event.

use std::collections::VecDeque;

use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mcp_wire::sse::{Decoder, Event};
use serde_json::Value;

use super::{Answer, INITIALIZE, Runner, within};

/// An open stream, and where its session takes messages. Dropping it ends the session.
pub(crate) struct EventStream {
    stream: Response<Incoming>,
    decoder: Decoder,
    events: VecDeque<Event>,
    /// The path and query to POST to.
    pub(crate) messages: String,
    /// The whole URL as it was told.
    pub(crate) endpoint: String,
}

impl EventStream {
    /// Opens a session at `/sse` with these headers.
    pub(crate) async fn open(runner: &Runner, headers: &[(&str, &str)]) -> Self {
        let stream = runner.send(runner.build(Method::GET, "/sse", headers, "")).await;
        assert_eq!(
            (stream.status().as_u16(), &stream.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        let (decoder, events) = (Decoder::new(64 << 20), VecDeque::new());
        let mut session = Self { stream, decoder, events, messages: String::new(), endpoint: String::new() };
        let first = session.next().await.expect("an event");
        assert_eq!(first.event.as_deref(), Some("endpoint"));
        session.endpoint = first.data.unwrap();
        session.messages = session.endpoint[session.endpoint.find("/messages").unwrap()..].to_owned();
        session
    }

    /// The same, with the handshake made.
    pub(crate) async fn initialized(runner: &Runner) -> Self {
        let mut session = Self::open(runner, &[]).await;
        session.says(runner, INITIALIZE).await;
        assert_eq!(session.message().await["id"], "init");
        session.says(runner, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        session
    }

    /// POSTs a message to the session.
    pub(crate) async fn post(&self, runner: &Runner, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = [&[("content-type", "application/json")], headers].concat();
        runner.request(Method::POST, &self.messages, &headers, body).await
    }

    /// POSTs a message that is accepted.
    pub(crate) async fn says(&self, runner: &Runner, body: &str) {
        let answer = self.post(runner, &[], body).await;
        assert_eq!((answer.status, answer.body.as_str()), (202, "Accepted"), "{body}: {answer:?}");
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        while self.events.is_empty() {
            let frame = within("an event", self.stream.body_mut().frame()).await?.ok()?;
            self.events.extend(self.decoder.push(frame.data_ref().unwrap()).unwrap());
        }
        self.events.pop_front()
    }

    /// The next message.
    pub(crate) async fn message(&mut self) -> Value {
        let event = self.next().await.expect("a message");
        assert_eq!(event.event.as_deref(), Some("message"));
        serde_json::from_str(&event.data.unwrap()).unwrap()
    }
}
