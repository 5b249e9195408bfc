//! The exchange of a caller's token for one that the MCP server takes (RFC 8693; toolhive-runner §2.9, toolhive-auth §6.1).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::RunConfig;

/// `type` of the middleware that exchanges the caller's token.
pub const TOKEN_EXCHANGE: &str = "tokenexchange";

/// Parameters of `tokenexchange`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenExchangeParameters {
    /// The exchange. It is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_exchange_config: Option<TokenExchangeConfig>,
}

/// The provider that exchanges tokens, and what it is asked for. Members are declared in the order ToolHive writes them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenExchangeConfig {
    /// The token endpoint. It is required.
    pub token_url: String,
    /// With which the proxy logs in there; empty: it does not.
    pub client_id: String,
    /// The password for that. Operators leave it empty: it comes by the environment (`TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET`).
    pub client_secret: String,
    /// The audience to ask for; empty: none is named.
    pub audience: String,
    /// The scopes to ask for; empty: none are named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The type that the caller's token is said to have, [short](token_type) or as a URN; empty: an access token.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject_token_type: String,
    /// `replace` puts the new token in `Authorization`, `custom` in the header below; empty is the same as `replace`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub header_strategy: String,
    /// The header for the new token; only for the strategy `custom`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_token_header_name: String,
}

/// The beginning of the URN of each type of token (RFC 8693 §3).
const TYPE_URN: &str = "urn:ietf:params:oauth:token-type:";
const TYPES: [&str; 3] = ["access_token", "id_token", "jwt"];

/// The URN of a type that a caller's token may be said to have, which is short or a URN; an empty one is an access token's. `None` for another.
pub fn token_type(name: &str) -> Option<String> {
    let short = name.strip_prefix(TYPE_URN).unwrap_or(name);
    let short = if name.is_empty() { TYPES[0] } else { short };
    TYPES.contains(&short).then(|| format!("{TYPE_URN}{short}"))
}

impl TokenExchangeConfig {
    /// The header for the new token, where it is another than `Authorization`.
    pub(super) fn own_header(&self) -> Option<&str> {
        (self.header_strategy == "custom").then_some(&*self.external_token_header_name)
    }
}

impl TokenExchangeParameters {
    pub(super) fn of(document: &RunConfig) -> Option<Self> {
        let config = document.token_exchange_config.clone()?;
        Some(Self { token_exchange_config: Some(config) })
    }
}

/// Without the client's secret.
impl fmt::Debug for TokenExchangeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenExchangeConfig")
            .field("token_url", &self.token_url)
            .field("client_id", &self.client_id)
            .field("audience", &self.audience)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_token_is_short_or_a_urn() {
        let urn = |short: &str| Some(format!("urn:ietf:params:oauth:token-type:{short}"));
        for (name, expected) in [
            ("", urn("access_token")),
            ("access_token", urn("access_token")),
            ("id_token", urn("id_token")),
            ("jwt", urn("jwt")),
            ("urn:ietf:params:oauth:token-type:jwt", urn("jwt")),
            ("urn:ietf:params:oauth:token-type:", None),
            ("saml2", None),
            ("JWT", None),
        ] {
            assert_eq!(token_type(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_client_secret_is_not_shown() {
        let config = TokenExchangeConfig { client_secret: "hunter2".into(), ..TokenExchangeConfig::default() };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
