//! The token endpoint of a provider, and how the proxy logs in there (RFC 6749 §2.3.1).

mod answer;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use form_urlencoded::byte_serialize;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Response, Uri};
use mcp_http::TokenFile;
use mcp_http::client::{Client as HttpClient, ClientTls, RequestError, RequestLimits};
use mcp_middleware::{BuildContext, Secret, SecretSource};
use mcp_runconfig::endpoint::EndpointPolicy;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::time::timeout;

pub(crate) use self::answer::{exchanged, granted};
use crate::failure::Failure;
use crate::held::Issued;
use crate::strategy::read_token;

/// The time for one question, with the wait for a place.
const TIME: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const ANSWER: usize = 128 << 10;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
/// The name in metrics of a question that brought a token.
const EXCHANGED: &str = "exchanged";

/// A token endpoint, and the client that the proxy is there.
pub(crate) struct TokenEndpoint {
    client: HttpClient,
    client_id: String,
    client_secret: ClientSecret,
    results: Family<OfResult, Counter>,
}

/// The secret of the proxy's client, which is read for each question.
pub(crate) enum ClientSecret {
    /// The process was given it.
    Source(SecretSource),
    /// The document names a file.
    File(TokenFile),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    result: &'static str,
}

impl ClientSecret {
    /// The secret as it is now.
    pub(crate) fn read(&self) -> Result<Option<Secret>, String> {
        match self {
            Self::Source(source) => source.read(),
            Self::File(file) => read_token(file).map(|secret| Some(Secret::new(secret))),
        }
    }
}

impl TokenEndpoint {
    /// The endpoint at `url`. An error is the end of a sentence about that.
    pub(crate) fn new(
        url: &str,
        client_id: String,
        client_secret: ClientSecret,
        context: &BuildContext,
    ) -> Result<Self, String> {
        let client = client(url, context)?;
        let results = Family::default();
        // Each count begins at zero, so that a query of failures has an answer before the first.
        for result in Failure::NAMES.into_iter().chain([EXCHANGED]) {
            drop(results.get_or_create_owned(&OfResult { result }));
        }
        let help = "Questions for a token for the MCP server at the provider, by their result";
        context.settings.metrics.register("token_exchanges", help, Family::clone(&results));
        Ok(Self { client, client_id, client_secret, results })
    }

    /// The provider's host.
    pub(crate) fn host(&self) -> &str {
        self.client.server().host().unwrap_or_default()
    }

    /// Whether it is asked without TLS.
    pub(crate) fn is_insecure(&self) -> bool {
        self.client.is_insecure()
    }

    /// The token that `question` brings in time. Its result is counted, and the reason of a failure logged.
    pub(crate) async fn ask(&self, question: impl Future<Output = Result<Issued, Failure>>) -> Result<Issued, Failure> {
        let started = Instant::now();
        let late = || Err(Failure::unavailable(format!("no answer of the token endpoint within {TIME:?}")));
        let issued = timeout(TIME, question).await.unwrap_or_else(|_| late());
        let result = issued.as_ref().map_or_else(Failure::name, |_| EXCHANGED);
        self.results.get_or_create_owned(&OfResult { result }).inc();
        if let Err(failure) = &issued {
            let host = self.host();
            tracing::warn!(host, reason = failure.reason(), took = ?started.elapsed(), "the provider gave no token for the server");
        }
        issued
    }

    /// The answer to a form. A client without a secret is named in it (RFC 6749 §3.2.1), one with a secret logs in.
    pub(crate) async fn post(&self, mut form: String) -> Result<Response<Bytes>, Failure> {
        let secret = self.client_secret.read().map_err(Failure::Unusable)?;
        let mut headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json")),
            (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
            (USER_AGENT, AGENT),
        ]);
        match (&*self.client_id, secret) {
            ("", _) => {}
            (id, Some(secret)) => _ = headers.insert(AUTHORIZATION, basic(id, secret.reveal())?),
            (id, None) => {
                form.push_str("&client_id=");
                form.extend(byte_serialize(id.as_bytes()));
            }
        }
        let limits = RequestLimits { time: TIME, answer: ANSWER };
        self.client.post(headers, form.into(), limits).await.map_err(|error| match error {
            RequestError::TooLong(limit, _) => Failure::Unusable(format!("the answer is longer than {limit} bytes")),
            RequestError::Forbidden(error) => Failure::Unusable(error.to_string()),
            error => Failure::unavailable(error.to_string()),
        })
    }
}

fn client(text: &str, context: &BuildContext) -> Result<HttpClient, String> {
    let settings = &context.settings;
    // Providers are in the cluster more often than not.
    let policy = EndpointPolicy {
        egress: settings.egress.clone(),
        ..EndpointPolicy::all_but_metadata(settings.exempt_endpoints.clone())
    };
    if text.is_empty() {
        return Err("is missing or empty".to_owned());
    }
    policy.check_url(text).map_err(|error| error.to_string())?;
    let url: Uri = text.parse().map_err(|_| "is no URL".to_owned())?;
    // Takes plain HTTP only where the URL has it: a certificate is always checked.
    let tls = ClientTls { insecure: url.scheme() == Some(&Scheme::HTTP), ..ClientTls::default() };
    let client = HttpClient::new("token endpoint", &url, tls, Some(policy), &settings.provider);
    client.map_err(|error| format!("cannot be trusted: {error}"))
}

/// The position of the first text that is no scope (RFC 6749 §3.3).
pub(crate) fn no_scope(scopes: &[String]) -> Option<usize> {
    let is_scope = |scope: &String| !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic());
    scopes.iter().position(|scope| !is_scope(scope))
}

/// The credentials of a client, each encoded as in a form (RFC 6749 §2.3.1).
fn basic(id: &str, secret: &str) -> Result<HeaderValue, Failure> {
    let [id, secret] = [id, secret].map(|text| byte_serialize(text.as_bytes()).collect::<String>());
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{id}:{secret}"))));
    let mut value = value.map_err(|_| Failure::Unusable("the client's secret fits no header".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_client_may_have_any_characters() {
        let value = basic("a:b", "s %ü").unwrap();
        let decoded = STANDARD.decode(value.to_str().unwrap().strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(String::from_utf8(decoded).unwrap(), "a%3Ab:s+%25%C3%BC");
        assert!(!format!("{value:?}").contains("YS"), "it is not shown");
    }
}
