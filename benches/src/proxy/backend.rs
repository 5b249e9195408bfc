//! An MCP server that answers at once: over streamable HTTP, HTTP with server-sent events, or standard input and output.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::http::SESSION;
use super::workload::{EVENTS, list, result};

/// How long the answer to a call of `long` is, and what of it is written at once, in bytes.
pub const LONG: usize = 100 << 20;
const LONG_PART: usize = 64 << 10;

type Answer = Response<Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>>;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Params<'a>,
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Arguments<'a>,
}

#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

/// What the server says of itself, with `instructions` bytes of instructions.
fn introduction(id: &str, instructions: usize) -> String {
    let instructions = "i".repeat(instructions);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"bench","version":"1"}},"instructions":"{instructions}"}}}}"#
    )
}

fn reply(message: &Message<'_>, id: &str, instructions: usize) -> String {
    match &*message.method {
        "initialize" => introduction(id, instructions),
        "tools/call" => result(id, &message.params.arguments.name),
        "tools/list" => list(id),
        _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
    }
}

/// Answers lines until there are none. A batch of answers is written once.
pub fn serve_stdio(instructions: usize) -> Result<()> {
    let mut input = std::io::BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let (mut line, mut answers) = (Vec::new(), Vec::new());
    while input.read_until(b'\n', &mut line)? != 0 {
        let message: Message<'_> = serde_json::from_slice(&line)?;
        if let Some(id) = message.id {
            answers.extend_from_slice(reply(&message, id.get(), instructions).as_bytes());
            answers.push(b'\n');
        }
        line.clear();
        if input.buffer().is_empty() {
            output.write_all(&answers)?;
            output.flush()?;
            answers.clear();
        }
    }
    Ok(())
}

/// Serves streamable HTTP, and HTTP with server-sent events, at `address` for ever.
pub async fn serve_http(address: SocketAddr, instructions: usize) -> Result<()> {
    let listener = tokio::net::TcpSocket::new_v4()?;
    listener.set_reuseaddr(true)?;
    listener.bind(address)?;
    // Streams are opened by the thousand.
    let listener: TcpListener = listener.listen(8192)?;
    let sessions = Arc::new(Sessions::default());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let sessions = Arc::clone(&sessions);
        let service = service_fn(move |request| answer(request, Arc::clone(&sessions), instructions));
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Sessions that were opened.
#[derive(Default)]
struct Sessions {
    count: AtomicU64,
    /// The streams of those over HTTP with server-sent events, by the query of the URL to POST to.
    streams: Mutex<HashMap<String, UnboundedSender<String>>>,
}

impl Sessions {
    fn streams(&self) -> MutexGuard<'_, HashMap<String, UnboundedSender<String>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream whose first event says where to POST.
    fn open(&self) -> Answer {
        let (send, answers) = unbounded_channel();
        let query = format!("session_id={}", self.count.fetch_add(1, Relaxed));
        let endpoint = Bytes::from(format!("event: endpoint\ndata: /messages?{query}\n\n"));
        self.streams().insert(query, send);
        let first = stream::once(std::future::ready(Ok(Frame::data(endpoint))));
        let answers = stream::unfold(answers, async |mut answers: UnboundedReceiver<String>| {
            let answer = answers.recv().await?;
            Some((event(&answer), answers))
        });
        events(StreamBody::new(futures::StreamExt::chain(first, answers)))
    }
}

async fn answer(
    request: Request<Incoming>,
    sessions: Arc<Sessions>,
    instructions: usize,
) -> Result<Answer, hyper::Error> {
    if request.uri().path() == "/sse" {
        return Ok(sessions.open());
    }
    let on_stream = request.uri().query().and_then(|query| sessions.streams().get(query).cloned());
    if request.method() == Method::GET {
        let silence = stream::once(std::future::ready(event(r#"{"jsonrpc":"2.0","method":"notifications/hello"}"#)));
        return Ok(events(StreamBody::new(futures::StreamExt::chain(silence, stream::pending()))));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let Ok(message) = serde_json::from_slice::<Message<'_>>(&body) else {
        return Ok(plain(StatusCode::BAD_REQUEST, String::new()));
    };
    let Some(id) = message.id else { return Ok(plain(StatusCode::ACCEPTED, String::new())) };
    let result = reply(&message, id.get(), instructions);
    if let Some(stream) = on_stream {
        // A client that is gone needs no answer.
        let _ = stream.send(result);
        return Ok(plain(StatusCode::ACCEPTED, String::new()));
    }
    let mut answer = match (&*message.method, &*message.params.name) {
        ("tools/call", "sse") => events(StreamBody::new(stream::iter([event(&result)]))),
        ("tools/call", "long") => long(),
        ("tools/call", "stream") => events(StreamBody::new(slowly(result))),
        _ => plain(StatusCode::OK, result),
    };
    if message.method == "initialize" {
        let session = format!("{:016x}-bench", sessions.count.fetch_add(1, Relaxed));
        answer.headers_mut().insert(SESSION, HeaderValue::try_from(session).unwrap_or(HeaderValue::from_static("?")));
    }
    Ok(answer)
}

fn plain(status: StatusCode, body: String) -> Answer {
    let mut response = Response::new(Box::pin(Full::from(body)) as _);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// White space, which no client takes for a message: this is about bytes.
fn long() -> Answer {
    let part = Bytes::from(vec![b' '; LONG_PART]);
    let parts = (0..LONG / LONG_PART).map(move |_| Ok(Frame::data(part.clone())));
    let mut response = Response::new(Box::pin(StreamBody::new(stream::iter(parts))) as _);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(LONG));
    response
}

fn events(body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Answer {
    let mut response = Response::new(Box::pin(body) as _);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

#[allow(clippy::unnecessary_wraps, reason = "an item of a stream that can fail")]
fn event(data: &str) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from(format!("event: message\ndata: {data}\n\n"))))
}

/// Events a millisecond apart, each in a write of its own, then the result.
fn slowly(result: String) -> impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> {
    stream::unfold((0, result), |(sent, result)| async move {
        let data = match sent {
            0 => progress(0),
            1..EVENTS => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                progress(sent)
            }
            EVENTS => result.clone(),
            _ => return None,
        };
        Some((event(&data), (sent + 1, result)))
    })
}

fn progress(step: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":{step}}}}}"#)
}
