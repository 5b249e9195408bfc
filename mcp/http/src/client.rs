//! The client for HTTPS servers of one kind: pooled connections, own roots and identity that follow their files, and limits.

mod tls;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioTimer;
use rustls::crypto::CryptoProvider;
use tokio_util::task::TaskTracker;

use self::tls::Material;
use crate::body::is_length_limit;
use crate::file::{Stamp, read_file};

/// How often the files are looked at, at most.
const CHECK_EVERY: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(90);
const MAX_IDLE: usize = 100;

type Connections = Pool<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Whom a client trusts and who it is. The default trusts the system's roots and shows no certificate.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// A PEM file with the only certificates that are trusted: authorities, or servers' own.
    pub ca: Option<PathBuf>,
    /// The PEM files of the client's certificate and of its key.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// Take any certificate, and plain HTTP.
    pub insecure: bool,
}

/// A file of [`ClientTls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// [`ClientTls::ca`].
    Ca,
    /// The certificate of [`ClientTls::pair`].
    Certificate,
    /// The key of [`ClientTls::pair`].
    Key,
}

/// A file of [`ClientTls`] that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ClientError {
    /// Which file.
    pub file: TlsFile,
    /// What is wrong with it.
    pub problem: String,
}

/// A request that brought no answer within its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The answer was not there in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer is longer than allowed.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// There is no connection, or it broke: the whole chain of causes in one line.
    #[error("{0}")]
    Network(String),
}

/// The limits of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// From the first byte of the connection to the last of the answer.
    pub time: Duration,
    /// The longest body of an answer, in bytes.
    pub answer: usize,
}

/// A client. It follows no redirects and speaks HTTP/1.1 under TLS 1.2 or newer. Drop it to close its connections.
pub struct Client {
    name: String,
    tls: ClientTls,
    provider: Arc<CryptoProvider>,
    tasks: TaskTracker,
    current: ArcSwap<Connections>,
    /// What the files were when they were last read.
    stamps: Mutex<Vec<Option<Stamp>>>,
    started: Instant,
    /// When the files are to be looked at next, in milliseconds after `started`.
    next_check: AtomicU64,
}

impl Client {
    /// A client that calls itself `name` in the log and runs its connections on `tasks`.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn new(
        name: &str,
        tls: ClientTls,
        provider: &Arc<CryptoProvider>,
        tasks: &TaskTracker,
    ) -> Result<Self, ClientError> {
        let stamps = tls.stamps();
        let connections = connect(&tls, provider, tasks)?;
        Ok(Self {
            name: name.to_owned(),
            tls,
            provider: Arc::clone(provider),
            tasks: tasks.clone(),
            current: ArcSwap::from_pointee(connections),
            stamps: Mutex::new(stamps),
            started: Instant::now(),
            next_check: AtomicU64::new(millis(CHECK_EVERY)),
        })
    }

    /// Whether it takes any certificate.
    pub fn is_insecure(&self) -> bool {
        self.tls.insecure
    }

    /// Sends a request over a pooled connection, or a new one under the certificates that the files hold now, and reads the answer.
    ///
    /// # Errors
    /// The limit that was exceeded, or why there is no answer. Any status is an answer.
    pub async fn send(&self, request: Request<Bytes>, limits: RequestLimits) -> Result<Response<Bytes>, RequestError> {
        self.refresh();
        let answer = tokio::time::timeout(limits.time, self.exchange(request, limits)).await;
        answer.unwrap_or(Err(RequestError::Timeout(limits.time)))
    }

    async fn exchange(&self, request: Request<Bytes>, limits: RequestLimits) -> Result<Response<Bytes>, RequestError> {
        let call = self.current.load().request(request.map(Full::new));
        let (head, body) = match call.await {
            Ok(response) => response.into_parts(),
            Err(error) => {
                // The failure may come of an exchange of certificates: look before the next call.
                self.next_check.store(0, Ordering::Relaxed);
                return Err(failure(&error, limits));
            }
        };
        match Limited::new(body, limits.answer).collect().await {
            Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
            Err(error) if is_length_limit(&*error) => Err(RequestError::TooLong(limits.answer)),
            Err(error) => Err(failure(&*error, limits)),
        }
    }

    /// Takes up changed files. Those that cannot be used are logged, and the connections stay as they are.
    fn refresh(&self) {
        let now = millis(self.started.elapsed());
        let due = self.next_check.load(Ordering::Relaxed);
        let claim =
            || self.next_check.compare_exchange(due, now + millis(CHECK_EVERY), Ordering::Relaxed, Ordering::Relaxed);
        if now < due || self.tls.paths().next().is_none() || claim().is_err() {
            return;
        }
        // Before reading: what changes while it is read shows as another stamp the next time.
        let found = self.tls.stamps();
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        if *stamps == found {
            return;
        }
        match connect(&self.tls, &self.provider, &self.tasks) {
            Ok(connections) => {
                *stamps = found;
                self.current.store(Arc::new(connections));
                tracing::info!(client = self.name, "certificates changed and are used from now on");
            }
            // Tried again, for it may be this process that could not read them: it may be out of file descriptors.
            Err(ClientError { file, problem }) => tracing::error!(
                client = self.name,
                file = %self.tls.path(file).display(),
                problem,
                "certificates changed and cannot be used; the former ones stay in use"
            ),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name).field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl ClientTls {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let pair = self.pair.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.ca.iter().chain(pair).map(PathBuf::as_path)
    }

    fn path(&self, file: TlsFile) -> &Path {
        let pair = self.pair.as_ref();
        let path = match file {
            TlsFile::Ca => self.ca.as_ref(),
            TlsFile::Certificate => pair.map(|(certificate, _)| certificate),
            TlsFile::Key => pair.map(|(_, key)| key),
        };
        path.map_or(Path::new(""), PathBuf::as_path)
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.paths().map(|path| Stamp::of(path).ok()).collect()
    }

    fn read(&self) -> Result<Material, ClientError> {
        let get = |file, path: &Path| read_file(path).map_err(|problem| ClientError { file, problem });
        let ca = self.ca.as_ref().map(|path| get(TlsFile::Ca, path)).transpose()?;
        let pair = self
            .pair
            .as_ref()
            .map(|(certificate, key)| Ok((get(TlsFile::Certificate, certificate)?, get(TlsFile::Key, key)?)));
        Ok(Material { ca, pair: pair.transpose()?, insecure: self.insecure })
    }
}

/// Fresh, empty connections under what the files hold.
fn connect(tls: &ClientTls, provider: &Arc<CryptoProvider>, tasks: &TaskTracker) -> Result<Connections, ClientError> {
    let config = tls::config(&tls.read()?, provider).map_err(|(file, problem)| ClientError { file, problem })?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let https = HttpsConnectorBuilder::new().with_tls_config(config);
    let https = if tls.insecure { https.https_or_http() } else { https.https_only() };
    Ok(Pool::builder(Tracked(tasks.clone()))
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MAX_IDLE)
        .pool_timer(TokioTimer::new())
        // Spells headers as the original does, for receivers that are not blind to case.
        .http1_title_case_headers(true)
        .build(https.enable_http1().wrap_connector(tcp)))
}

/// An error on the way: one that says it timed out is a time-out.
fn failure(error: &(dyn Error + 'static), limits: RequestLimits) -> RequestError {
    let mut texts = Vec::new();
    let mut at = Some(error);
    while let Some(error) = at {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut) {
            return RequestError::Timeout(limits.time);
        }
        texts.push(error.to_string());
        at = error.source();
    }
    // Libraries repeat their source's text in their own.
    texts.dedup();
    RequestError::Network(texts.join(": "))
}

/// Runs the connections as tasks that the owner can wait for.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
