//! The client for one HTTPS server: kept connections, own roots and identity that follow their files, and limits.

mod tls;

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::rt::{Read, Write};
use mcp_runconfig::endpoint::EndpointPolicy;
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;

use self::tls::Material;
use crate::body::{CollectError, collect};
use crate::connections::{Connecting, Connections, Failure, ForbiddenAddress};
use crate::file::{Stamp, read_file};

/// The shortest time between two checks of the files.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The roots that a client trusts, and its own certificate. The default trusts the system's roots and shows no
/// certificate.
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
    /// The problem.
    pub problem: String,
}

/// A request that brought no answer within its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The answer was not there in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer of this status and content type is longer than allowed.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize, StatusCode, Option<HeaderValue>),
    /// The server has no address that may be called.
    #[error("{0}")]
    Forbidden(ForbiddenAddress),
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
    server: Uri,
    tls: ClientTls,
    policy: Option<Arc<EndpointPolicy>>,
    provider: Arc<CryptoProvider>,
    /// It is none as long as the files cannot be used.
    current: ArcSwapOption<Connections>,
    /// The state of the files when they were last read.
    stamps: Mutex<Vec<Option<Stamp>>>,
    started: Instant,
    /// When the files are to be looked at next, in milliseconds after `started`.
    next_check: AtomicU64,
}

impl Client {
    /// A client of the host and port of `server`, which calls itself `name` in the log. Each address that it connects
    /// to must be one that `policy` allows; without a policy it may be any.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn new(
        name: &str,
        server: &Uri,
        tls: ClientTls,
        policy: Option<EndpointPolicy>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, ClientError> {
        let (client, problem) = Self::with(name, server, tls, policy, provider);
        problem.map_or(Ok(client), Err)
    }

    /// Makes a client whose files may come later: there is no connection before they can be used.
    pub fn waiting(
        name: &str,
        server: &Uri,
        tls: ClientTls,
        policy: Option<EndpointPolicy>,
        provider: &Arc<CryptoProvider>,
    ) -> Self {
        let (client, problem) = Self::with(name, server, tls, policy, provider);
        if let Some(ClientError { file, problem }) = problem {
            let file = client.tls.path(file).display();
            tracing::warn!(client = name, %file, problem, "certificates cannot be used yet");
        }
        client
    }

    fn with(
        name: &str,
        server: &Uri,
        tls: ClientTls,
        policy: Option<EndpointPolicy>,
        provider: &Arc<CryptoProvider>,
    ) -> (Self, Option<ClientError>) {
        let stamps = tls.stamps();
        let policy = policy.map(Arc::new);
        let (connections, problem) = match connect(server, &tls, policy.as_ref(), provider) {
            Ok(connections) => (Some(Arc::new(connections)), None),
            Err(error) => (None, Some(error)),
        };
        let client = Self {
            name: name.to_owned(),
            server: server.clone(),
            tls,
            policy,
            provider: Arc::clone(provider),
            current: ArcSwapOption::new(connections),
            // After a failure nothing counts as read, so that it is tried again.
            stamps: Mutex::new(if problem.is_some() { Vec::new() } else { stamps }),
            started: Instant::now(),
            next_check: AtomicU64::new(millis(CHECK_EVERY)),
        };
        (client, problem)
    }

    /// The server that it calls.
    pub fn server(&self) -> &Uri {
        &self.server
    }

    /// Whether it takes any certificate.
    pub fn is_insecure(&self) -> bool {
        self.tls.insecure
    }

    /// Posts `body` to the path and query of the server's URL, over a kept connection or a new one under the
    /// certificates that the files hold now, and reads the answer.
    ///
    /// # Errors
    /// The limit that was exceeded, or why there is no answer. Any status is an answer.
    pub async fn post(
        &self,
        headers: HeaderMap,
        body: Bytes,
        limits: RequestLimits,
    ) -> Result<Response<Bytes>, RequestError> {
        let path = self.server.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        self.post_to(path, headers, body, limits).await
    }

    /// Posts `body` to `path` of the server, otherwise as [`post`](Self::post).
    ///
    /// # Errors
    /// The limit that was exceeded, or why there is no answer. Any status is an answer.
    pub async fn post_to(
        &self,
        path: PathAndQuery,
        headers: HeaderMap,
        body: Bytes,
        limits: RequestLimits,
    ) -> Result<Response<Bytes>, RequestError> {
        self.call(Method::POST, path, headers, body, limits).await
    }

    /// Sends a request of `method` to `path` of the server, otherwise as [`post`](Self::post).
    ///
    /// # Errors
    /// The limit that was exceeded, or why there is no answer. Any status is an answer.
    pub async fn call(
        &self,
        method: Method,
        path: PathAndQuery,
        headers: HeaderMap,
        body: Bytes,
        limits: RequestLimits,
    ) -> Result<Response<Bytes>, RequestError> {
        self.send(self.request(method, path, headers, body), limits).await
    }

    /// Opens a connection for `protocol`, as TLS names it (ALPN), under the certificates that the files hold now. It is
    /// the caller's, and closed when it is dropped.
    ///
    /// # Errors
    /// Why there is none within `time`.
    pub async fn open(
        &self,
        protocol: &[u8],
        time: Duration,
    ) -> Result<impl Read + Write + Unpin + Send + use<>, RequestError> {
        let how = connecting(&self.server, &self.tls, self.policy.as_ref(), &self.provider);
        let mut how = how.map_err(|error| RequestError::Network(error.to_string()))?;
        how.timeout = Some(time);
        how.tls.iter_mut().for_each(|tls| tls.alpn_protocols = vec![protocol.to_vec()]);
        let limits = RequestLimits { time, answer: 0 };
        Connections::new(self.server.clone(), how).open().await.map_err(|error| refused(error, limits))
    }

    /// Gets what is at `path` of the server, otherwise as [`post`](Self::post).
    ///
    /// # Errors
    /// The limit that was exceeded, or why there is no answer. Any status is an answer, that of a redirect as well.
    pub async fn get(
        &self,
        path: PathAndQuery,
        headers: HeaderMap,
        limits: RequestLimits,
    ) -> Result<Response<Bytes>, RequestError> {
        self.call(Method::GET, path, headers, Bytes::new(), limits).await
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limits: RequestLimits,
    ) -> Result<Response<Bytes>, RequestError> {
        self.refresh();
        let answer = tokio::time::timeout(limits.time, self.exchange(request, limits)).await;
        answer.unwrap_or(Err(RequestError::Timeout(limits.time)))
    }

    fn request(&self, method: Method, path: PathAndQuery, mut headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
        let authority = self.server.authority().map(Authority::as_str).unwrap_or_default();
        // Without a user and a password, which are no part of a Host.
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        // An authority is a header's value always.
        headers.extend(HeaderValue::from_str(host).ok().map(|host| (HOST, host)));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.into();
        *request.headers_mut() = headers;
        request
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        limits: RequestLimits,
    ) -> Result<Response<Bytes>, RequestError> {
        let Some(connections) = self.current.load_full() else {
            return Err(RequestError::Network("the files of its certificates cannot be used".to_owned()));
        };
        let (head, body) = match connections.exchange(request, None).await {
            Ok((response, _)) => response.into_parts(),
            Err(error) => {
                // The failure may come of an exchange of certificates: look before the next call.
                self.next_check.store(0, Ordering::Relaxed);
                return Err(refused(error, limits));
            }
        };
        match collect(body, limits.answer).await {
            Ok(body) => Ok(Response::from_parts(head, body)),
            Err(CollectError::TooLarge { limit }) => {
                Err(RequestError::TooLong(limit, head.status, head.headers.get(CONTENT_TYPE).cloned()))
            }
            Err(CollectError::Broken(error)) => Err(failure(&*error, limits)),
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
        match connect(&self.server, &self.tls, self.policy.as_ref(), &self.provider) {
            Ok(connections) => {
                *stamps = found;
                self.current.store(Some(Arc::new(connections)));
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
    /// The client's side of TLS under what the files hold now.
    ///
    /// # Errors
    /// A file that cannot be used, or no root that is trusted.
    pub fn config(&self, provider: &Arc<CryptoProvider>) -> Result<ClientConfig, ClientError> {
        tls::config(&self.read()?, provider).map_err(|(file, problem)| ClientError { file, problem })
    }

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
fn connect(
    server: &Uri,
    tls: &ClientTls,
    policy: Option<&Arc<EndpointPolicy>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Connections, ClientError> {
    Ok(Connections::new(server.clone(), connecting(server, tls, policy, provider)?))
}

fn connecting(
    server: &Uri,
    tls: &ClientTls,
    policy: Option<&Arc<EndpointPolicy>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Connecting, ClientError> {
    let config = tls.config(provider)?;
    let plain = tls.insecure && server.scheme() == Some(&Scheme::HTTP);
    let tls = (!plain).then_some(config);
    Ok(Connecting { tls, title_case: true, policy: policy.cloned(), ..Connecting::default() })
}

fn refused(error: Failure, limits: RequestLimits) -> RequestError {
    match error {
        Failure::Unreachable(error) | Failure::Unnamed(error) | Failure::Broken(error) => failure(&*error, limits),
        Failure::Forbidden(error) => RequestError::Forbidden(error),
    }
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use mcp_runconfig::endpoint::Reach;

    use super::*;

    #[tokio::test]
    async fn an_address_that_the_policy_forbids_is_never_called() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientTls { insecure: true, ..ClientTls::default() };
        let limits = RequestLimits { time: Duration::from_secs(30), answer: 1 << 10 };
        for (url, reach) in [
            ("https://169.254.169.254/latest", Reach::AllButMetadata),
            ("http://[fe80::1]/", Reach::AllButMetadata),
            ("http://10.0.0.1/", Reach::Public),
            // Each address of the name is on this machine, whichever it has.
            ("http://localhost:1/", Reach::Private),
        ] {
            let policy = Some(EndpointPolicy { reach, ..EndpointPolicy::new(false, Vec::new()) });
            let client = Client::new("t", &Uri::from_static(url), tls.clone(), policy, &provider).unwrap();
            let answer = client.get(PathAndQuery::from_static("/"), HeaderMap::new(), limits).await;
            assert!(matches!(answer, Err(RequestError::Forbidden(_))), "{url}: {answer:?}");
        }
    }
}
