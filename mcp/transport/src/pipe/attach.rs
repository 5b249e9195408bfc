//! A server in a container of Kubernetes, attached to as `kubectl attach --stdin` does (toolhive-runner §1.8).
//!
//! The container has `stdin` and `stdinOnce`: its input ends with the attachment, so that a server which ends when its input does is
//! started anew, and each attachment meets a fresh process. kube's own `AttachedProcess` is not used: it writes and reads in
//! one loop, which stands still for ever where a server does not read before its answer is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use http::Request;
use kube_client::client::Connection;
use kube_client::{Client, Config};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, simplex};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{BoxFuture, Closed, End, LEAVE, OpenError, OpenPipe, Pipe, log_errors_of};

// The channels of the protocol, the first byte of each frame.
// https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/util/remotecommand/constants.go
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Says that the channel named in the byte after it has ended. Version 5 of the protocol has it.
const CLOSE: u8 = 255;

/// How long the API server may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// The pause between tries to attach; it doubles up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The API server says yes before it asks the kubelet, which may say no. Nothing says that it said yes.
const SETTLE: Duration = Duration::from_millis(500);
/// How often the API server is asked whether it is there, and how long nothing may come from it.
const PING: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_mins(1);
/// How long nothing may come while the connection takes nothing: the API server is asked behind what the server has not read yet.
const STALLED: Duration = Duration::from_mins(10);
/// Bytes of each stream that wait in this process.
const BUFFER: usize = 64 << 10;

/// The container of a pod whose standard input and output an MCP server speaks over. What it writes to its standard error is logged.
#[derive(Clone)]
pub struct Attach {
    client: Client,
    namespace: String,
    pod: String,
    container: String,
}

impl std::fmt::Debug for Attach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { namespace, pod, container, .. } = self;
        f.debug_struct("Attach").field("namespace", namespace).field("pod", pod).field("container", container).finish()
    }
}

impl Attach {
    /// The container of the pod in the namespace of this process: the one of its ServiceAccount, or of its kubeconfig outside of a cluster.
    ///
    /// # Errors
    /// When the Kubernetes API cannot be found.
    pub async fn to(pod: impl Into<String>, container: impl Into<String>) -> Result<Self, OpenError> {
        let unreachable = |error: mcp_http::BoxError| OpenError::Unreachable(error);
        let config = Config::infer().await.map_err(|error| unreachable(error.into()))?;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| unreachable(error.into()))?;
        Ok(Self { client, namespace, pod: pod.into(), container: container.into() })
    }

    /// Tries until the container runs.
    async fn attach(&self) -> OpenPipe {
        let Self { namespace, pod, container, .. } = self;
        let (mut pause, mut said) = (PAUSE, String::new());
        loop {
            match self.attempt().await {
                Ok(open) => {
                    tracing::info!(namespace, pod, container, "attached to the MCP server's container");
                    return open;
                }
                Err(problem) => {
                    if problem != said {
                        tracing::warn!(
                            namespace,
                            pod,
                            container,
                            problem,
                            "cannot attach to the MCP server's container; trying again"
                        );
                        said = problem;
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn attempt(&self) -> Result<OpenPipe, String> {
        let connection = match timeout(CONNECT, self.connect()).await {
            Ok(connection) => connection.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("the Kubernetes API does not answer in {CONNECT:?}")),
        };
        let (open, mut over) = open(connection);
        match timeout(SETTLE, over.wait_for(Option::is_some)).await {
            Ok(Ok(over)) => Err(match &*over {
                Some(Over::Broke(problem)) => problem.clone(),
                _ => "the container's process has ended".to_owned(),
            }),
            Ok(Err(_)) => Err("the attachment was lost".to_owned()),
            Err(_) => Ok(open),
        }
    }

    async fn connect(&self) -> Result<Connection, kube_client::Error> {
        let streams = ["stdin", "stdout", "stderr"].map(|stream| (stream, "true"));
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("container", &self.container)
            .extend_pairs(streams)
            .finish();
        let path = format!("/api/v1/namespaces/{}/pods/{}/attach?{query}", self.namespace, self.pod);
        self.client.connect(Request::get(path).body(Vec::new()).map_err(kube_client::Error::HttpError)?).await
    }
}

impl Pipe for Attach {
    fn open(&self) -> BoxFuture<'_, Result<OpenPipe, OpenError>> {
        Box::pin(async { Ok(self.attach().await) })
    }

    /// The kubelet starts it.
    fn is_started_elsewhere(&self) -> bool {
        true
    }
}

/// How an attachment came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Over {
    /// The container's process has ended.
    Ended,
    /// It is not known what became of the process, whose input has ended.
    Broke(String),
}

/// An attachment: its tasks end with it, and its connection.
struct Attached {
    over: watch::Receiver<Option<Over>>,
    tasks: JoinSet<()>,
}

fn open(connection: Connection) -> (OpenPipe, watch::Receiver<Option<Over>>) {
    let says_end = connection.supports_stream_close();
    let (frames_out, frames_in) = connection.into_stream().split();
    let (input, write) = simplex(BUFFER);
    let (read, output) = simplex(BUFFER);
    let (errors, error_output) = simplex(BUFFER);
    let (tell, over) = watch::channel(None);
    let mut tasks = JoinSet::new();
    let stalled = Arc::new(AtomicBool::new(false));
    tasks.spawn(feed(input, frames_out, says_end, Arc::clone(&stalled)));
    tasks.spawn(log_errors_of(errors));
    tasks.spawn(async move {
        let over = listen(frames_in, output, error_output, &stalled).await;
        if let Over::Broke(problem) = &over {
            tracing::warn!(problem, "the attachment to the MCP server's container broke");
        }
        tell.send_replace(Some(over));
    });
    let end = Attached { over: over.clone(), tasks };
    (OpenPipe { read: Box::new(read), write: Box::new(write), end: Box::new(end) }, over)
}

impl End for Attached {
    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let _ = self.over.wait_for(Option::is_some).await;
        })
    }

    fn close(mut self: Box<Self>, why: &'static str) -> BoxFuture<'static, Closed> {
        Box::pin(async move {
            // The container's input is closed, which asks the server to end.
            let gone = timeout(LEAVE, self.ended()).await.is_ok();
            if gone {
                tracing::info!(why, "the MCP server's container is detached");
            } else {
                tracing::warn!(why, "the MCP server does not end when its input does");
            }
            self.tasks.shutdown().await;
            if gone { Closed::Gone } else { Closed::Stays }
        })
    }
}

/// Sends what is written to the server, and asks now and then whether the API server is there. `stalled` says whether the connection
/// takes nothing at the moment.
async fn feed(
    mut input: impl AsyncRead + Unpin,
    mut frames: impl Sink<Message, Error = Error> + Unpin,
    says_end: bool,
    stalled: Arc<AtomicBool>,
) {
    let mut pings = interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_open = true;
    loop {
        let mut frame = BytesMut::with_capacity(BUFFER);
        frame.put_u8(STDIN);
        let message = tokio::select! {
            read = input.read_buf(&mut frame), if is_open => match read {
                Ok(length) if length > 0 => Message::Binary(frame.freeze()),
                _ => {
                    is_open = false;
                    if says_end { Message::binary(vec![CLOSE, STDIN]) } else { Message::Close(None) }
                }
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        stalled.store(true, Ordering::Relaxed);
        let sent = frames.send(message).await;
        stalled.store(false, Ordering::Relaxed);
        // Whoever listens is told why.
        if sent.is_err() {
            return;
        }
    }
}

/// Takes what the server says apart, until its process or the connection ends.
async fn listen(
    mut frames: impl Stream<Item = Result<Message, Error>> + Unpin,
    mut output: impl AsyncWrite + Unpin,
    mut errors: impl AsyncWrite + Unpin,
    stalled: &AtomicBool,
) -> Over {
    let closed = || Over::Broke("the connection was closed".to_owned());
    let mut silent = Duration::ZERO;
    loop {
        let frame = timeout(SILENCE, frames.next()).await;
        silent = if frame.is_err() { silent + SILENCE } else { Duration::ZERO };
        let frame = match frame {
            Ok(Some(Ok(Message::Binary(frame)))) => frame,
            Ok(Some(Ok(Message::Close(_))) | None) => return closed(),
            Ok(Some(Ok(_))) => continue,
            Ok(Some(Err(error))) => return Over::Broke(error.to_string()),
            Err(_) if stalled.load(Ordering::Relaxed) && silent < STALLED => continue,
            Err(_) => return Over::Broke(format!("the Kubernetes API is silent for {silent:?}")),
        };
        // Nobody reads a stream that was given up.
        match frame.split_first() {
            Some((&STDOUT, bytes)) => _ = output.write_all(bytes).await,
            Some((&STDERR, bytes)) => _ = errors.write_all(bytes).await,
            Some((&STATUS, status)) => return of_status(status),
            _ => {}
        }
    }
}

/// What the last frame says: a `Status` of Kubernetes.
fn of_status(status: &[u8]) -> Over {
    #[derive(Deserialize)]
    struct Status {
        status: Option<String>,
        #[serde(default)]
        message: String,
    }
    match serde_json::from_slice(status) {
        Ok(Status { status: Some(status), .. }) if status == "Success" => Over::Ended,
        Ok(Status { message, .. }) if !message.is_empty() => Over::Broke(message),
        _ => Over::Broke(format!("the container runtime says {}", String::from_utf8_lossy(status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_process_is_told_from_an_attachment_that_breaks() {
        for (status, expected) in [
            (r#"{"metadata":{},"status":"Success"}"#, Over::Ended),
            (
                r#"{"status":"Failure","message":"container mcp not found in pod fetch-0","code":500}"#,
                Over::Broke("container mcp not found in pod fetch-0".to_owned()),
            ),
            ("gone", Over::Broke("the container runtime says gone".to_owned())),
        ] {
            assert_eq!(of_status(status.as_bytes()), expected, "{status}");
        }
    }

    #[tokio::test]
    async fn the_streams_of_a_container_are_told_apart_until_its_process_ends() {
        let frame = |channel: u8, bytes: &[u8]| Ok(Message::binary([&[channel], bytes].concat()));
        let frames = futures::stream::iter([
            frame(STDOUT, b""),
            frame(STDOUT, b"one\n"),
            frame(STDERR, b"two\n"),
            Ok(Message::Pong(Bytes::new())),
            frame(STATUS, br#"{"status":"Success"}"#),
            frame(STDOUT, b"never"),
        ]);
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        assert_eq!(listen(frames, &mut output, &mut errors, &AtomicBool::new(false)).await, Over::Ended);
        assert_eq!((output.as_slice(), errors.as_slice()), (&b"one\n"[..], &b"two\n"[..]));
    }

    #[tokio::test]
    async fn the_end_of_the_input_is_said_once_and_the_connection_stays_for_the_last_words() {
        let (sent, mut frames) = futures::channel::mpsc::unbounded();
        let sent = sent.sink_map_err(|_| Error::ConnectionClosed);
        let feeding = tokio::spawn(feed(&b"call\n"[..], sent, true, Arc::default()));
        let mut seen = Vec::new();
        while seen.last() != Some(&vec![CLOSE, STDIN]) {
            if let Some(Message::Binary(frame)) = frames.next().await {
                seen.push(frame.to_vec());
            }
        }
        assert_eq!(seen, [b"\0call\n".to_vec(), vec![CLOSE, STDIN]]);
        assert!(!feeding.is_finished());
        feeding.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_reads_late_keeps_its_attachment_and_an_api_that_is_silent_loses_it() {
        // Takes one frame, then nothing: the server does not read.
        let (sent, mut frames) = futures::channel::mpsc::channel(0);
        let stalled = Arc::new(AtomicBool::new(false));
        let input = tokio::io::repeat(b'x').take(1 << 20);
        let sent = sent.sink_map_err(|_| Error::ConnectionClosed);
        let feeding = tokio::spawn(feed(input, sent, true, Arc::clone(&stalled)));
        let listening = listen(futures::stream::pending(), tokio::io::sink(), tokio::io::sink(), &stalled);
        tokio::pin!(listening);
        assert!(timeout(5 * SILENCE, &mut listening).await.is_err(), "it is busy, not gone");
        // From here on it reads, and pings go out that nobody answers.
        let reading = tokio::spawn(async move { while frames.next().await.is_some() {} });
        let over = timeout(2 * SILENCE, listening).await;
        assert!(matches!(&over, Ok(Over::Broke(problem)) if problem.contains("silent")), "{over:?}");
        feeding.abort();
        reading.abort();
    }
}
