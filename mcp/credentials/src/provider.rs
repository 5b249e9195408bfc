//! Questions in forms to whoever gives credentials.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Response, Uri};
use mcp_http::client::{Client, ClientTls, RequestError, RequestLimits};
use mcp_middleware::BuildContext;
use mcp_runconfig::endpoint::EndpointPolicy;

use crate::asking::TIME;
use crate::failure::Failure;

/// The longest answer, in bytes.
const ANSWER: usize = 128 << 10;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));

/// A client of the provider at the URL `text`, which the log calls `name`.
pub(crate) fn client(name: &str, text: &str, context: &BuildContext) -> Result<Client, String> {
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
    let client = Client::new(name, &url, tls, Some(policy), &settings.provider);
    client.map_err(|error| format!("cannot be trusted: {error}"))
}

/// Posts a form with `headers`, and returns the answer, which is of type `accept`.
pub(crate) async fn post(
    client: &Client,
    mut headers: HeaderMap,
    form: String,
    accept: &'static str,
) -> Result<Response<Bytes>, Failure> {
    headers.extend([
        (ACCEPT, HeaderValue::from_static(accept)),
        (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
        (USER_AGENT, AGENT),
    ]);
    let limits = RequestLimits { time: TIME, answer: ANSWER };
    client.post(headers, form.into(), limits).await.map_err(|error| match error {
        RequestError::TooLong(limit, ..) => Failure::Unusable(format!("the answer is longer than {limit} bytes")),
        RequestError::Forbidden(error) => Failure::Unusable(error.to_string()),
        error => Failure::unavailable(error.to_string()),
    })
}
