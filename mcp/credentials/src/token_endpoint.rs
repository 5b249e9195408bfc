//! The token endpoint of a provider, and how the proxy logs in there (RFC 6749 §2.3.1).

mod answer;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use form_urlencoded::byte_serialize;
use http::Response;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use mcp_http::client::Client as HttpClient;
use mcp_middleware::{BuildContext, SecretSource};

pub(crate) use self::answer::{exchanged, granted, left};
use crate::asking::{Asking, Names};
use crate::failure::Failure;
use crate::provider;

const NAMES: Names = Names {
    provider: "the token endpoint",
    failed: "the provider gave no token for the server",
    counter: ("token_exchanges", "Questions for a token for the MCP server at the provider, by their result"),
    given: "exchanged",
    questions: "token_exchanges",
    going_on: "exchanges_going_on",
    held: "exchanged_tokens",
};

/// A token endpoint, and the client that the proxy is there.
pub(crate) struct TokenEndpoint {
    client: HttpClient,
    client_id: String,
    /// It is read for each question.
    client_secret: SecretSource,
}

impl TokenEndpoint {
    /// The endpoint at `url`. An error is the end of a sentence about that.
    pub(crate) fn new(
        url: &str,
        client_id: String,
        client_secret: SecretSource,
        context: &BuildContext,
    ) -> Result<Self, String> {
        let client = provider::client("token endpoint", url, context)?;
        Ok(Self { client, client_id, client_secret })
    }

    /// The provider's host.
    pub(crate) fn host(&self) -> &str {
        self.client.server().host().unwrap_or_default()
    }

    /// Whether it is asked without TLS.
    pub(crate) fn is_insecure(&self) -> bool {
        self.client.is_insecure()
    }

    /// Whether the proxy's client has a secret.
    pub(crate) fn has_secret(&self) -> bool {
        matches!(self.client_secret.read(), Ok(Some(_)))
    }

    /// Questions to it.
    pub(crate) fn asking(&self, context: &BuildContext) -> Arc<Asking> {
        Asking::new(&NAMES, self.host(), &context.settings.metrics)
    }

    /// The answer to a form. A client without a secret is named in it (RFC 6749 §3.2.1), one with a secret logs in.
    pub(crate) async fn post(&self, mut form: String) -> Result<Response<Bytes>, Failure> {
        let secret = self.client_secret.read().map_err(Failure::Unusable)?;
        let mut headers = HeaderMap::new();
        match (&*self.client_id, secret) {
            ("", _) => {}
            (id, Some(secret)) => _ = headers.insert(AUTHORIZATION, basic(id, secret.reveal())?),
            (id, None) => {
                form.push_str("&client_id=");
                form.extend(byte_serialize(id.as_bytes()));
            }
        }
        provider::post(&self.client, headers, form, "application/json").await
    }
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
