//! The pooled connections to one webhook, rebuilt when its certificates change.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Pool, Error};
use hyper_util::rt::TokioTimer;
use mcp_middleware::ProxySettings;
use mcp_runconfig::webhook::TlsConfig;
use rustls::crypto::CryptoProvider;
use tokio_util::task::TaskTracker;

use super::files::{Stamp, read, rooted};
use super::tls::{self, Material};

/// How often the files are looked at, at most. The HMAC key is looked at with every call.
const CHECK_EVERY: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(90);
const MAX_IDLE: usize = 100;

type Connections = Pool<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A member of `tls_config`, what is wrong with it, and how to mend it.
pub(crate) type Problem = (&'static str, String, &'static str);

const FIX: &str = "mount the Secret there, with the content in PEM";

/// The client of one webhook.
pub(crate) struct Client {
    name: String,
    files: Files,
    provider: Arc<CryptoProvider>,
    tasks: TaskTracker,
    current: ArcSwap<Connections>,
    /// What the files were when they were last read.
    stamps: Mutex<Vec<Option<Stamp>>>,
    started: Instant,
    /// When the files are to be looked at next, in milliseconds after `started`.
    next_check: AtomicU64,
}

/// Where the material of `tls_config` is.
struct Files {
    ca: Option<PathBuf>,
    pair: Option<(PathBuf, PathBuf)>,
    insecure: bool,
}

impl Client {
    pub(crate) fn new(name: &str, tls: &TlsConfig, context: &ProxySettings) -> Result<Self, Problem> {
        let files = Files::new(tls, context)?;
        let stamps = files.stamps();
        let connections = connect(&files, &context.provider, &context.tasks)?;
        Ok(Self {
            name: name.to_owned(),
            files,
            provider: Arc::clone(&context.provider),
            tasks: context.tasks.clone(),
            current: ArcSwap::from_pointee(connections),
            stamps: Mutex::new(stamps),
            started: Instant::now(),
            next_check: AtomicU64::new(millis(CHECK_EVERY)),
        })
    }

    /// Whether it takes any certificate.
    pub(crate) fn is_insecure(&self) -> bool {
        self.files.insecure
    }

    /// Sends a request over a pooled connection, or a new one under the certificates that the files hold now.
    pub(crate) async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        self.refresh();
        let call = self.current.load().request(request);
        let result = call.await;
        if result.is_err() {
            // The failure may come of an exchange of certificates: look before the next call.
            self.next_check.store(0, Ordering::Relaxed);
        }
        result
    }

    /// Takes up changed files. Those that cannot be used are logged, and the connections stay as they are.
    fn refresh(&self) {
        let now = millis(self.started.elapsed());
        let due = self.next_check.load(Ordering::Relaxed);
        let claim =
            || self.next_check.compare_exchange(due, now + millis(CHECK_EVERY), Ordering::Relaxed, Ordering::Relaxed);
        if now < due || self.files.none() || claim().is_err() {
            return;
        }
        // Before reading: what changes while it is read shows as another stamp the next time.
        let found = self.files.stamps();
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        if *stamps == found {
            return;
        }
        match connect(&self.files, &self.provider, &self.tasks) {
            Ok(connections) => {
                *stamps = found;
                self.current.store(Arc::new(connections));
                tracing::info!(webhook = self.name, "webhook's certificates changed and are used from now on");
            }
            // Tried again, for it may be this process that could not read them: it may be out of file descriptors.
            Err((field, problem, _)) => tracing::error!(
                webhook = self.name,
                field,
                problem,
                "webhook's certificates changed and cannot be used; the former ones stay in use"
            ),
        }
    }
}

impl Files {
    fn new(tls: &TlsConfig, context: &ProxySettings) -> Result<Self, Problem> {
        let locate = |field: &'static str, path: &str| match rooted(path, context.files_root.as_deref()) {
            _ if path.is_empty() => Ok(None),
            Some(path) => Ok(Some(path)),
            None => Err((field, format!("{path:?} is not an absolute path"), "write an absolute path")),
        };
        let certificate = locate("client_cert_path", &tls.client_cert_path)?;
        let key = locate("client_key_path", &tls.client_key_path)?;
        Ok(Self {
            ca: locate("ca_bundle_path", &tls.ca_bundle_path)?,
            pair: certificate.zip(key),
            insecure: tls.insecure_skip_verify,
        })
    }

    fn none(&self) -> bool {
        self.ca.is_none() && self.pair.is_none()
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let pair = self.pair.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.ca.iter().chain(pair).map(|path| Stamp::of(path).ok()).collect()
    }

    fn read(&self) -> Result<Material, Problem> {
        let get = |field: &'static str, path: &PathBuf| read(path).map_err(|problem| (field, problem, FIX));
        let ca = self.ca.as_ref().map(|path| get("ca_bundle_path", path)).transpose()?;
        let pair = self
            .pair
            .as_ref()
            .map(|(certificate, key)| Ok((get("client_cert_path", certificate)?, get("client_key_path", key)?)));
        Ok(Material { ca, pair: pair.transpose()?, insecure: self.insecure })
    }
}

/// Fresh, empty connections under the material in `files`.
fn connect(files: &Files, provider: &Arc<CryptoProvider>, tasks: &TaskTracker) -> Result<Connections, Problem> {
    let config = tls::config(&files.read()?, provider).map_err(|(field, problem)| (field, problem, FIX))?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let https = HttpsConnectorBuilder::new().with_tls_config(config);
    let https = if files.insecure { https.https_or_http() } else { https.https_only() };
    Ok(Pool::builder(Tracked(tasks.clone()))
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MAX_IDLE)
        .pool_timer(TokioTimer::new())
        // Spells the signature's headers as the original does, for receivers that are not blind to case.
        .http1_title_case_headers(true)
        .build(https.enable_http1().wrap_connector(tcp)))
}

/// Runs the connections as tasks that the owner of the gate can wait for.
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
