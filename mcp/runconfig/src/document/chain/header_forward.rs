//! Headers that the proxy adds to what it sends to a remote MCP server (toolhive-runner §2.19, toolhive-operator §2.5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AWS_STS, TOKEN_EXCHANGE, TOKEN_INJECTION, TokenExchangeConfig, TokenExchangeParameters};
use crate::{MiddlewareConfig, Parameters as _};

/// Headers of a connection, and the two by which MCP knows a client's session: added to each request, one would stand for every client.
const RESERVED: [&str; 13] = [
    "close",
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "last-event-id",
    "mcp-session-id",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];
/// Headers that servers believe of a proxy before them: where a request comes from, who sent it, and which method and path it is really of.
const CLAIMS: [&str; 18] = [
    "cf-connecting-ip",
    "client-ip",
    "forwarded",
    // CGI makes HTTP_PROXY of it, and many HTTP clients call through what that variable names.
    "proxy",
    "remote-user",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-original-path",
    "x-forwarded",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
    "x-remote-user",
    "x-replaced-path",
    "x-rewrite-url",
    "x-script-name",
];
const CLAIM_PREFIXES: [&str; 3] = ["x-auth-request-", "x-forwarded-", "x-original-"];

/// Whether a header of this name cannot be added to requests (toolhive-runner §2.19, toolhive-0.63 §4.3).
pub fn is_reserved_header(name: &str) -> bool {
    RESERVED.iter().any(|reserved| same_header(name, reserved)) || starts_with(name, "proxy-") || is_claim_header(name)
}

/// Headers by which the two sides understand a request: a token in one would take its place.
const OF_REQUESTS: [&str; 4] = ["accept", "content-type", "cookie", "origin"];
const LONGEST_NAME: usize = 128;

/// The reason why no credential of the proxy can stand in the header of this name, if there is one; the fix is another name.
pub fn credential_header_problem(name: &str) -> Option<String> {
    if name.len() > LONGEST_NAME {
        let start: String = name.chars().take(32).collect();
        return Some(format!("{:?} is longer than {LONGEST_NAME} bytes", start + "…"));
    }
    let of_requests = OF_REQUESTS.iter().any(|own| same_header(name, own)) || starts_with(name, "mcp-");
    let is_taken = of_requests || is_reserved_header(name);
    is_taken.then(|| format!("{name:?} is a header that requests have for something else"))
}

/// Whether servers take a header of this name for what a proxy before them says. No client may say so, as what the proxy checked is another
/// request then.
pub fn is_claim_header(name: &str) -> bool {
    CLAIMS.iter().any(|claim| same_header(name, claim)) || CLAIM_PREFIXES.iter().any(|prefix| starts_with(name, prefix))
}

/// Whether some servers take two names for one: those that read headers as CGI variables know no case, and `-`, `_` and `.` are one to them.
pub fn same_header(a: &str, b: &str) -> bool {
    a.len() == b.len() && starts_with(a, b)
}

/// Whether AWS takes a header of this name for a signature, or for a part of one.
pub fn is_header_of_aws(name: &str) -> bool {
    same_header(name, "authorization") || starts_with(name, "x-amz-")
}

/// Whether an entry of the chain puts the proxy's credential into the header of this name. Another value there would be lost, or take its place.
pub fn is_header_of_credential(MiddlewareConfig { kind, parameters }: &MiddlewareConfig, name: &str) -> bool {
    let is_authorization = same_header(name, "authorization");
    match &**kind {
        TOKEN_INJECTION => is_authorization,
        AWS_STS => is_header_of_aws(name),
        TOKEN_EXCHANGE => {
            let exchange = TokenExchangeParameters::read(parameters.clone(), "").ok();
            let exchange = exchange.and_then(|parameters| parameters.token_exchange_config);
            match exchange.as_ref().and_then(TokenExchangeConfig::own_header) {
                Some(own) => same_header(name, own),
                None => is_authorization,
            }
        }
        _ => false,
    }
}

fn starts_with(name: &str, prefix: &str) -> bool {
    let same = |a: u8, b: u8| {
        if b.is_ascii_alphanumeric() { a.eq_ignore_ascii_case(&b) } else { !a.is_ascii_alphanumeric() }
    };
    name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(|(a, b)| same(a, b))
}

/// The member `header_forward` of the document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeaderForward {
    /// Values by the names of headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_plaintext_headers: BTreeMap<String, String>,
    /// Identifiers of secrets by the names of headers. A value is in the proxy's environment, as `TOOLHIVE_SECRET_<identifier>`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_headers_from_secret: BTreeMap<String, String>,
}

/// Parameters of `header-forward`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeaderForwardParameters {
    /// Values by the names of headers.
    pub add_headers: BTreeMap<String, String>,
    /// Identifiers of secrets by the names of headers. Documents have them in [`HeaderForward`] alone.
    pub add_headers_from_secret: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_credential_has_a_header_of_its_own() {
        let exchange = |change: Value| json!({"token_exchange_config": change});
        let custom = |header: &str| json!({"header_strategy": "custom", "external_token_header_name": header});
        for (kind, parameters, own, others) in [
            (TOKEN_INJECTION, json!({}), &["Authorization", "AUTHORIZATION"][..], &["X-Key", "X-Amz-Date"][..]),
            (TOKEN_EXCHANGE, exchange(json!({})), &["authorization"], &["X-Key"]),
            (TOKEN_EXCHANGE, exchange(json!({"header_strategy": "replace"})), &["Authorization"], &["X-Key"]),
            // One that has no effect without the strategy.
            (TOKEN_EXCHANGE, exchange(json!({"external_token_header_name": "X-Key"})), &["Authorization"], &["X-Key"]),
            (TOKEN_EXCHANGE, exchange(custom("X-Key")), &["x-key", "X_Key"], &["Authorization", "X-Keys"]),
            (AWS_STS, json!({}), &["Authorization", "X-Amz-Date", "x_amz_security_token"], &["X-Amzn-Trace", "X-Key"]),
            ("header-forward", json!({}), &[], &["Authorization"]),
        ] {
            let config = MiddlewareConfig::new(kind, parameters);
            let is_own = |name: &&&str| is_header_of_credential(&config, name);
            assert_eq!(own.iter().filter(is_own).count(), own.len(), "{config:?}");
            assert_eq!(others.iter().find(is_own), None, "{config:?}");
        }
    }
}
