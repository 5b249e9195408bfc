//! Calls of the provider: which URLs may be called, what is shown to them, and how long they may take (toolhive-auth
//! §7).
//!
//! The bearer token of `AuthTokenFile` goes to the URLs that the document names, and to the key set that the issuer, to
//! which it was shown already, names in its metadata. It goes nowhere else: a redirect is followed only where it stays
//! with scheme, host and port.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{Response, StatusCode, Uri};
use mcp_http::TokenFile;
use mcp_http::client::{Client, ClientError, ClientTls, RequestError, RequestLimits};
use mcp_http::location::same_origin;
use mcp_runconfig::endpoint::{EndpointPolicy, without_secrets};
use rustls::crypto::CryptoProvider;

/// The timeout of one call, from the first byte of the connection to the last of the answer.
const TIME: Duration = Duration::from_secs(5);
/// The longest document, in bytes. A key set of a hundred keys is a tenth of it.
const MAX_DOCUMENT: usize = 1 << 20;
/// The longest answer about a token, in bytes: as ToolHive's (toolhive-auth §1.6), and as long as a JWT in a header can
/// be.
const MAX_ANSWER: usize = 64 << 10;
/// The accepted media types: kube-apiserver serves its keys with the type of RFC 7517, section 8.5, and answers 406
/// without it.
const ACCEPTED: &str = "application/json, application/jwk-set+json";
/// Redirects that are followed.
const MAX_REDIRECTS: usize = 3;
/// URLs for which connections are kept: those of metadata, key set and introspection, and one to which the metadata
/// moved.
const MAX_URLS: usize = 4;

/// Calls the provider.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) token_file: Option<TokenFile>,
    pub(crate) allow_http: bool,
    pub(crate) policy: EndpointPolicy,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) clients: Mutex<HashMap<Uri, Arc<Client>>>,
}

/// Why a call brought nothing; for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub(crate) struct FetchError {
    place: String,
    problem: String,
}

impl FetchError {
    /// `place` is a URL, or a member of the document.
    pub(crate) fn new(place: impl ToString, problem: impl Into<String>) -> Self {
        Self { place: without_secrets(&place.to_string()), problem: problem.into() }
    }
}

impl Fetcher {
    /// A URL that may be called, as far as its text tells: its address is judged at each connection.
    ///
    /// # Errors
    /// The problem.
    pub(crate) fn url(&self, text: &str) -> Result<Uri, String> {
        let url: Uri = text.parse().map_err(|_| "is no URL".to_owned())?;
        let Some(authority) = url.authority() else { return Err("is not absolute".to_owned()) };
        if authority.as_str().contains('@') {
            return Err("has a user name in it".to_owned());
        }
        match url.scheme_str() {
            Some("https") => Ok(url),
            Some("http") if self.allow_http => Ok(url),
            Some("http") => Err("is not https".to_owned()),
            _ => Err("is neither https nor http".to_owned()),
        }
    }

    /// The client for `url`.
    ///
    /// # Errors
    /// The CA file cannot be used.
    pub(crate) fn client(&self, url: &Uri) -> Result<Arc<Client>, ClientError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(url) {
            return Ok(Arc::clone(client));
        }
        // Takes plain HTTP only where the URL has it: a certificate is always checked.
        let insecure = url.scheme() == Some(&Scheme::HTTP);
        let tls = ClientTls { ca: self.ca.clone(), pair: None, insecure };
        let client = Client::new("OIDC provider", url, tls, Some(self.policy.clone()), &self.provider)?;
        if clients.len() >= MAX_URLS {
            clients.clear();
        }
        let client = Arc::new(client);
        clients.insert(url.clone(), Arc::clone(&client));
        Ok(client)
    }

    /// Gets the document at `url`.
    pub(crate) async fn get(&self, url: &Uri) -> Result<Response<Bytes>, FetchError> {
        let client = self.client(url).map_err(|error| FetchError::new(url, error.to_string()))?;
        let headers = headers(self.token()?);
        let mut path = url.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        for _ in 0..=MAX_REDIRECTS {
            let answer = client.get(path.clone(), headers.clone(), limits(MAX_DOCUMENT)).await;
            let answer = answer.map_err(|error: RequestError| FetchError::new(url, error.to_string()))?;
            match answer.status() {
                StatusCode::OK => return Ok(answer),
                status if status.is_redirection() => {
                    path = redirect(url, answer.headers()).map_err(|problem| FetchError::new(url, problem))?;
                }
                status => return Err(FetchError::new(url, format!("answered {status}"))),
            }
        }
        Err(FetchError::new(url, format!("redirects more than {MAX_REDIRECTS} times")))
    }

    /// Posts a form to `url`, with `authorization` or else the bearer token of the file.
    pub(crate) async fn post(
        &self,
        url: &Uri,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> Result<Bytes, FetchError> {
        let client = self.client(url).map_err(|error| FetchError::new(url, error.to_string()))?;
        let authorization = if authorization.is_some() { authorization } else { self.token()? };
        let mut headers = headers(authorization);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let answer = client.post(headers, form.into(), limits(MAX_ANSWER)).await;
        let answer = answer.map_err(|error| FetchError::new(url, error.to_string()))?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(FetchError::new(url, format!("answered {status}"))),
        }
    }

    /// The bearer token that the file holds now: kubelet replaces it long before it expires.
    pub(crate) fn token(&self) -> Result<Option<HeaderValue>, FetchError> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let fail = |problem: String| FetchError::new("AuthTokenFile", problem);
        let token = file.read_token().map_err(fail)?;
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| fail(format!("{file} holds no token")))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn limits(answer: usize) -> RequestLimits {
    RequestLimits { time: TIME, answer }
}

fn headers(authorization: Option<HeaderValue>) -> HeaderMap {
    let agent = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
    let headers = [(ACCEPT, HeaderValue::from_static(ACCEPTED)), (USER_AGENT, agent)];
    headers.into_iter().chain(authorization.map(|value| (AUTHORIZATION, value))).collect()
}

/// Where the redirect of `url` in these headers leads to, on the same host.
fn redirect(url: &Uri, headers: &HeaderMap) -> Result<PathAndQuery, &'static str> {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok()).ok_or("redirects to nowhere")?;
    same_origin(url, location).ok_or("redirects to another host, which is not followed")
}
