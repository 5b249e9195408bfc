//! Makes the calls of a login: each within a time and a length, and no redirect is followed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri};
use jiff::Timestamp;
use mcp_http::client::{Client, ClientTls, RequestError, RequestLimits};
use mcp_runconfig::endpoint::EndpointPolicy;
use rustls::crypto::CryptoProvider;

use crate::check_login::answer::{Answer, Call, NoAnswer, origin};

/// The longest answer, in bytes: as long as a proxy takes metadata to be.
const MAX_ANSWER: usize = 1 << 20;

/// Calls servers, each over connections of its own.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The only authorities that are trusted; `None` for the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The longest that a call may take.
    pub(crate) time: Duration,
    pub(crate) provider: Arc<CryptoProvider>,
    clients: HashMap<String, Client>,
}

impl Caller {
    pub(crate) fn new(ca: Option<PathBuf>, time: Duration, provider: Arc<CryptoProvider>) -> Self {
        Self { ca, time, provider, clients: HashMap::new() }
    }

    /// Gets a document.
    pub(crate) async fn get(&mut self, url: &Uri, headers: HeaderMap) -> Call {
        self.call(Method::GET, url, headers, Bytes::new()).await
    }

    pub(crate) async fn call(&mut self, method: Method, url: &Uri, mut headers: HeaderMap, body: Bytes) -> Call {
        let agent = concat!("portcullis/", env!("CARGO_PKG_VERSION"), " check-login");
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let answer = self.send(method.clone(), url, headers, body).await;
        Call { method, url: url.clone(), answer }
    }

    /// Whether a GET of `url` opens a stream that begins within the time.
    pub(crate) async fn opens_stream(&mut self, url: &Uri, headers: HeaderMap) -> bool {
        // Its first byte is one too many, so that its end is not waited for.
        let limits = RequestLimits { time: self.time, answer: 0 };
        let Ok(client) = self.client(url) else { return false };
        let answer = client.call(Method::GET, path(url), headers, Bytes::new(), limits).await;
        let is_stream = |kind: &HeaderValue| kind.as_bytes().starts_with(b"text/event-stream");
        matches!(answer, Err(RequestError::TooLong(_, StatusCode::OK, Some(kind))) if is_stream(&kind))
    }

    async fn send(&mut self, method: Method, url: &Uri, headers: HeaderMap, body: Bytes) -> Result<Answer, NoAnswer> {
        let limits = RequestLimits { time: self.time, answer: MAX_ANSWER };
        let asked = Timestamp::now().as_second();
        let answer = self.client(url)?.call(method, path(url), headers, body, limits).await;
        let (head, body) = answer.map_err(no_answer)?.into_parts();
        Ok(Answer { status: head.status, headers: head.headers, body, asked, at: Timestamp::now().as_second() })
    }

    fn client(&mut self, url: &Uri) -> Result<&Client, NoAnswer> {
        // The certificate of an https server is always checked.
        let tls = ClientTls { ca: self.ca.clone(), pair: None, insecure: url.scheme_str() == Some("http") };
        // A server chooses some of the URLs; the credentials of the machine are none of its business.
        let policy = EndpointPolicy::all_but_metadata(Vec::new());
        match self.clients.entry(origin(url)) {
            std::collections::hash_map::Entry::Occupied(client) => Ok(client.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                let client = Client::new("check-login", url, tls, Some(policy), &self.provider);
                Ok(place.insert(client.map_err(|error| NoAnswer::Certificate(format!("--ca-bundle {error}")))?))
            }
        }
    }
}

fn path(url: &Uri) -> PathAndQuery {
    url.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

fn no_answer(error: RequestError) -> NoAnswer {
    match error {
        RequestError::Timeout(time) => NoAnswer::Slow(time),
        RequestError::TooLong(limit, ..) => NoAnswer::TooLong(limit),
        RequestError::Forbidden(_) => NoAnswer::Unreachable(
            "its address is link-local, where clouds answer for the machine's credentials; it is not called".to_owned(),
        ),
        // As rustls tells of what a server shows.
        RequestError::Network(text) if text.contains("certificate") => NoAnswer::Certificate(text),
        error => NoAnswer::Unreachable(error.to_string()),
    }
}
