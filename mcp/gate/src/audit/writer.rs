//! The thread that writes events, and the queue before it.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mcp_middleware::Metrics;
use mcp_store::Client;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Bytes of events that wait for the output.
const QUEUED: usize = 8 << 20;
/// Bytes of those that one client's events may take.
const OF_CLIENT: usize = QUEUED / 4;
/// The time that a file may take to open: a pipe opens when somebody reads it.
const OPENED: Duration = Duration::from_secs(5);
/// The pause between two lines of the log that tell of lost events.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// The time that the log may take for the last of them.
const TOLD: Duration = Duration::from_secs(1);
/// Bytes of memory that are kept for the next lines.
const KEPT: usize = 256 << 10;
/// The time for which lines are gathered before they are written.
const GATHER: Duration = Duration::from_millis(5);
/// The pause after an output that takes nothing now.
const WAIT: Duration = Duration::from_millis(20);

/// The destination of events.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// Whether it ends within a line.
    torn: bool,
}

/// Queues events for the thread that writes them.
pub(super) struct Writer {
    queue: Arc<Queue>,
    /// Tells of the end of the thread.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    written: Counter,
    lost: Counter,
}

#[derive(Default)]
struct State {
    /// The lines that wait, one after the other, and their number.
    lines: Vec<u8>,
    count: u64,
    /// The bytes of each client's among them.
    clients: HashMap<Client, usize>,
    /// Bytes that the thread is writing, the lines in them, and the bytes of each client's.
    writing: usize,
    writing_lines: u64,
    writing_clients: HashMap<Client, usize>,
    closed: bool,
    /// The time at which the log last told of lost events.
    told: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: &'static str,
}

// === impl Output ===

impl Output {
    /// Standard output.
    pub(super) fn stdout() -> Result<Self, String> {
        let output = std::io::stdout().as_fd().try_clone_to_owned();
        output
            .map(|output| Self { file: File::from(output), torn: false })
            .map_err(|error| format!("standard output is closed: {error}"))
    }

    /// The end of the file at `path`, which is made where it does not exist. Nobody else may read it then.
    pub(super) async fn file(path: PathBuf) -> Result<Self, String> {
        let name = path.display().to_string();
        let opening = spawn_blocking(move || {
            let torn = ends_within_a_line(&path);
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
            Ok::<_, std::io::Error>(Self { file, torn })
        });
        match timeout(OPENED, opening).await {
            Ok(Ok(Ok(output))) => Ok(output),
            Ok(Ok(Err(error))) => Err(format!("{name:?} cannot be written: {error}")),
            Ok(Err(error)) => Err(format!("{name:?} cannot be opened: {error}")),
            Err(_) => Err(format!("{name:?} does not open within {OPENED:?}: nobody reads this pipe")),
        }
    }
}

// === impl Writer ===

impl Writer {
    /// Starts the thread. It counts in `metrics`.
    pub(super) fn start(output: Output, metrics: &Metrics) -> Self {
        let events = Family::<Labels, Counter>::default();
        metrics.register("audit_events", "Audit events, by what became of them", events.clone());
        let [written, lost] = ["written", "lost"].map(|result| events.get_or_create_owned(&Labels { result }));
        let queue = Arc::new(Queue { state: Mutex::default(), filled: Condvar::new(), written, lost });
        let (end, ended) = oneshot::channel();
        let thread_queue = Arc::clone(&queue);
        let started = thread::Builder::new().name("audit".to_owned()).spawn(move || {
            thread_queue.drain(output);
            drop(end);
        });
        if let Err(error) = started {
            tracing::error!(%error, "no thread for audit events could be started; all are lost");
            queue.state().closed = true;
        }
        Self { queue, ended: Mutex::new(Some(ended)) }
    }

    /// Queues a line for `client`, or counts it as lost where there is no room.
    pub(super) fn write(&self, client: &Client, line: &[u8]) {
        let mut state = self.queue.state();
        let State { lines, count, clients, writing, writing_clients, closed, .. } = &mut *state;
        let all = lines.len() + *writing + line.len();
        let waiting = clients.get_mut(client);
        // Mostly nothing is being written: then the client need not be looked up there.
        let being_written = if writing_clients.is_empty() { None } else { writing_clients.get(client) };
        let held = waiting.as_deref().copied().unwrap_or(0) + being_written.copied().unwrap_or(0);
        if *closed || all > QUEUED || (held > 0 && held + line.len() > OF_CLIENT) {
            let lost = self.queue.lose(&mut state, 1);
            drop(state);
            drop(tell(lost, "the output does not take them"));
            return;
        }
        match waiting {
            Some(waiting) => *waiting += line.len(),
            None => drop(clients.insert(client.clone(), line.len())),
        }
        let was_empty = lines.is_empty();
        lines.extend_from_slice(line);
        *count += 1;
        drop(state);
        if was_empty {
            self.queue.filled.notify_one();
        }
    }

    /// Waits until all is written, for `longest`.
    pub(super) async fn close(&self, longest: Duration) {
        self.queue.state().closed = true;
        self.queue.filled.notify_one();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended
            && timeout(longest, ended).await.is_err()
        {
            let lost = {
                let mut state = self.queue.state();
                state.told = None;
                let left = state.count + state.writing_lines;
                self.queue.lose(&mut state, left)
            };
            if let Some(told) = tell(lost, "the output took none of them until the end") {
                // The log may be as blocked as the output.
                let _ = timeout(TOLD, told).await;
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.state().closed = true;
        self.queue.filled.notify_one();
    }
}

// === impl Queue ===

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes until the queue is closed.
    fn drain(&self, Output { file: mut output, mut torn }: Output) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.state();
            (state.writing, state.writing_lines) = (0, 0);
            state.writing_clients = HashMap::new();
            while state.lines.is_empty() && !state.closed {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.lines.is_empty() {
                return;
            }
            if !state.closed {
                // A thread that woke for each line would cost more than the lines.
                (state, _) = self.filled.wait_timeout(state, GATHER).unwrap_or_else(PoisonError::into_inner);
            }
            batch.clear();
            batch.shrink_to(KEPT);
            std::mem::swap(&mut batch, &mut state.lines);
            state.writing_clients = std::mem::take(&mut state.clients);
            let count = std::mem::take(&mut state.count);
            (state.writing, state.writing_lines) = (batch.len(), count);
            drop(state);
            if torn {
                // Readers skip half a line, and must find the next one.
                torn = write_all(&mut output, b"\n").is_err();
            }
            let Err((done, error)) = write_all(&mut output, &batch) else {
                self.written.inc_by(count);
                continue;
            };
            let whole = batch[..done].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let written = batch[..whole].split(|byte| *byte == b'\n').count() as u64 - 1;
            self.written.inc_by(written);
            torn |= whole < done;
            let lost = self.lose(&mut self.state(), count - written);
            drop(tell(lost, error.to_string()));
        }
    }

    /// Counts lost events; returns the number of all, where the log is to tell of them now.
    fn lose(&self, state: &mut State, events: u64) -> Option<u64> {
        self.lost.inc_by(events);
        let tells = state.told.is_none_or(|told| told.elapsed() >= TELL_AGAIN);
        tells.then(|| {
            state.told = Some(Instant::now());
            self.lost.get()
        })
    }
}

/// Tells the log of lost events, in a thread of its own: where the log and the output are one pipe, both are blocked. Returns what ends
/// when it is told.
fn tell(lost: Option<u64>, why: impl Into<String>) -> Option<oneshot::Receiver<()>> {
    let (lost, why) = (lost?, why.into());
    let (end, told) = oneshot::channel();
    let telling = move || {
        tracing::error!(lost, why, "audit events are lost");
        drop(end);
    };
    thread::Builder::new().name("audit-log".to_owned()).spawn(telling).ok().map(|_| told)
}

/// Whether a file, as a process before this one has left it, ends within a line.
fn ends_within_a_line(path: &Path) -> bool {
    let last = || {
        // A pipe would not open.
        let mut file = path.metadata().ok()?.is_file().then(|| File::open(path).ok())??;
        let mut byte = [0];
        file.seek(SeekFrom::End(-1)).ok()?;
        file.read_exact(&mut byte).ok()?;
        Some(byte)
    };
    last().is_some_and(|byte| byte != *b"\n")
}

/// Writes all of `text`; an error comes with the bytes that were written before.
fn write_all(output: &mut File, text: &[u8]) -> Result<(), (usize, std::io::Error)> {
    let mut done = 0;
    while done < text.len() {
        match output.write(&text[done..]) {
            Ok(0) => return Err((done, ErrorKind::WriteZero.into())),
            Ok(written) => done += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park_timeout(WAIT),
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}
