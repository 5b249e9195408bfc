//! The proxy's own login at a remote MCP server (toolhive-auth §6.6).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use crate::duration;

/// The name that ToolHive gives the step which shows the remote server the proxy's own token. Its documents do not list it: the member
/// `remote_auth_config` asks for it.
pub const TOKEN_INJECTION: &str = "oauth-token-injection";

/// The member `remote_auth_config` of the document, with the members that a proxy without a person before it can use. The names that older
/// documents have are read, too.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemoteAuthConfig {
    /// The client by which the proxy gets tokens.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    /// The password of that client, or the secret that has it as `<name>,target=<where>`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_secret: String,
    /// A file with that password.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_secret_file: String,
    /// The scopes to ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Whether no browser is opened for a person to log in with.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skip_browser: bool,
    /// The time for a person to log in.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "nanoseconds",
        deserialize_with = "positive_duration"
    )]
    pub timeout: Option<Duration>,
    /// The port to which a browser comes back; 0 means not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub callback_port: u16,
    /// Whether a browser's login is bound to its beginning (RFC 7636).
    pub use_pkce: bool,
    /// The server that tokens are for (RFC 8707).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The provider of tokens.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// Where a browser begins a login.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub authorize_url: String,
    /// Where tokens are given.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token_url: String,
    /// More parameters of a login.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub oauth_params: BTreeMap<String, String>,
    /// The name of the parameter with the scopes, where it is another than `scope`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scope_param_name: String,
    /// The token to show, or the secret that has it as `<name>,target=<where>`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_token: String,
    /// A file with that token.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_token_file: String,
    /// When a token that ToolHive has kept expires, which it writes always.
    pub cached_token_expiry: String,
    /// When a client's password that ToolHive has kept expires, which it writes always.
    pub cached_secret_expiry: String,
}

/// The time that Go has for none.
const NEVER: &str = "0001-01-01T00:00:00Z";

impl Default for RemoteAuthConfig {
    fn default() -> Self {
        Self {
            client_id: String::new(),
            client_secret: String::new(),
            client_secret_file: String::new(),
            scopes: Vec::new(),
            skip_browser: false,
            timeout: None,
            callback_port: 0,
            use_pkce: false,
            resource: String::new(),
            issuer: String::new(),
            authorize_url: String::new(),
            token_url: String::new(),
            oauth_params: BTreeMap::new(),
            scope_param_name: String::new(),
            bearer_token: String::new(),
            bearer_token_file: String::new(),
            cached_token_expiry: NEVER.to_owned(),
            cached_secret_expiry: NEVER.to_owned(),
        }
    }
}

impl RemoteAuthConfig {
    /// A login with the token that a proxy has in its environment, as `TOOLHIVE_SECRET_<identifier>`.
    pub fn bearer(identifier: &str) -> Self {
        Self { bearer_token: format!("{identifier},target=bearer_token"), ..Self::default() }
    }
}

/// The identifier in a member that names a secret, as in `<name>,target=<where>`. `None` for any other text. One without its name is the identifier
/// of no secret, and none itself.
pub fn secret_identifier(member: &str) -> Option<&str> {
    member.split_once(",target=").map(|(name, _)| name)
}

/// Without what may be secret.
impl fmt::Debug for RemoteAuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAuthConfig")
            .field("client_id", &self.client_id)
            .field("issuer", &self.issuer)
            .field("token_url", &self.token_url)
            .finish_non_exhaustive()
    }
}

/// A Go duration, or integer nanoseconds. 0 is the same as absent.
fn positive_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let nanos = duration::nanoseconds(&Value::deserialize(deserializer)?).map_err(D::Error::custom)?;
    let nanos = u64::try_from(nanos).map_err(|_| D::Error::custom("is negative; write a duration such as \"5m\""))?;
    Ok((nanos > 0).then(|| Duration::from_nanos(nanos)))
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn nanoseconds<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(|value| u64::try_from(value.as_nanos()).unwrap_or(u64::MAX)).serialize(serializer)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn is_zero(port: &u16) -> bool {
    *port == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Parameters as _;

    #[test]
    fn names_of_older_documents_and_durations_of_go_are_read() {
        let read = |value| RemoteAuthConfig::read(value, "p").unwrap();
        let expected = RemoteAuthConfig {
            client_id: "c".to_owned(),
            token_url: "https://idp/token".to_owned(),
            timeout: Some(Duration::from_mins(5)),
            ..RemoteAuthConfig::default()
        };
        let now = json!({"client_id": "c", "token_url": "https://idp/token", "timeout": 300_000_000_000_u64});
        let older = json!({"ClientID": "c", "TokenURL": "https://idp/token", "Timeout": "5m"});
        assert_eq!((read(now), read(older)), (expected.clone(), expected.clone()));
        assert_eq!(serde_json::to_value(expected).unwrap()["timeout"], json!(300_000_000_000_u64));
        assert_eq!(read(json!({})), RemoteAuthConfig::default());
    }

    #[test]
    fn a_secret_is_named_with_its_target() {
        assert_eq!(secret_identifier(&RemoteAuthConfig::bearer("up-token").bearer_token), Some("up-token"));
        for (text, expected) in
            [("up-token", None), ("", None), ("up-token,target=", Some("up-token")), (",target=x", Some(""))]
        {
            assert_eq!(secret_identifier(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_token_and_a_password_are_not_shown() {
        let config = RemoteAuthConfig {
            bearer_token: "hunter1".into(),
            client_secret: "hunter2".into(),
            ..RemoteAuthConfig::default()
        };
        assert!(!format!("{config:?}").contains("hunter"));
    }
}
