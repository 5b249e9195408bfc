//! The proof by which callers say who they are (toolhive-auth §1.2).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `type` of the middleware that says who calls.
pub const AUTH: &str = "auth";

/// Parameters of `auth`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuthParameters {
    /// The checks of tokens; `None` where nobody has to log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config: Option<OidcConfig>,
}

/// The OpenID Connect provider whose tokens a proxy takes. Upstream gives its members Go's names and writes all of them always.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct OidcConfig {
    /// The `iss` that a token must have, and where the provider's metadata is found. Empty: only the key set counts.
    #[serde(deserialize_with = "trimmed")]
    pub issuer: String,
    /// The text that the `aud` of a token must contain.
    pub audience: String,
    /// Where the provider's keys are; empty where its metadata says that.
    #[serde(rename = "JWKSURL")]
    pub jwks_url: String,
    /// With which the proxy logs in to the provider to ask it about tokens.
    #[serde(rename = "ClientID")]
    pub client_id: String,
    /// The password for that. Operators leave it empty: it comes by the environment (`TOOLHIVE_OIDC_CLIENT_SECRET`).
    pub client_secret: String,
    /// A PEM file with the only authorities that are trusted; empty means the system's.
    #[serde(rename = "CACertPath")]
    pub ca_cert_path: String,
    /// A file with the bearer token that is shown to the provider; empty means none.
    pub auth_token_file: String,
    /// Whether the provider may have a private address.
    #[serde(rename = "AllowPrivateIP")]
    pub allow_private_ip: bool,
    /// Whether the provider may be spoken to without TLS.
    #[serde(rename = "InsecureAllowHTTP")]
    pub insecure_allow_http: bool,
    /// Where the provider tells of tokens that are no JWT; empty: such tokens are refused.
    #[serde(rename = "IntrospectionURL")]
    pub introspection_url: String,
    /// The URL by which clients know this server; empty: they are not told where to get a token.
    #[serde(rename = "ResourceURL")]
    pub resource_url: String,
    /// The scopes that clients are told to ask for; written as null when empty.
    #[serde(serialize_with = "null_when_empty")]
    pub scopes: Vec<String>,
}

/// Without the client's secret.
impl fmt::Debug for OidcConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OidcConfig")
            .field("issuer", &self.issuer)
            .field("audience", &self.audience)
            .field("jwks_url", &self.jwks_url)
            .field("introspection_url", &self.introspection_url)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

/// Tokens and metadata have it without the blanks that a document may have around it.
fn trimmed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(String::deserialize(deserializer)?.trim().to_owned())
}

fn null_when_empty<S: Serializer>(scopes: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    if scopes.is_empty() { serializer.serialize_none() } else { scopes.serialize(serializer) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Parameters as _;

    #[test]
    fn a_login_is_not_lost_behind_a_member_that_differs_in_case() {
        for value in [
            json!({"OIDC_CONFIG": null, "oidc_config": {"Issuer": "https://idp"}}),
            json!({"oidc_config": {"Issuer": "https://idp"}, "oidc_Config": null}),
            json!({"oidc_config": {"Audience": "a", "audience": "b"}}),
            json!({"oidc_config": {"JWKSURL": "", "JwK\u{17f}Url": "https://idp/keys"}}),
        ] {
            let error = AuthParameters::read(value, "p").unwrap_err().to_string();
            assert!(error.contains("is the same member"), "{error}");
        }
        let read = |value| AuthParameters::read(value, "p").unwrap().oidc_config;
        assert_eq!(read(json!({"OIDC_Config": {}})), Some(OidcConfig::default()));
        assert_eq!(read(json!({"oidc_config": null})), None);
        let read = read(json!({"oidc_config": {"issuer": "i", "jwksUrl": "j", "allowprivateip": true}})).unwrap();
        assert_eq!((read.issuer.as_str(), read.jwks_url.as_str(), read.allow_private_ip), ("i", "j", true));
    }

    #[test]
    fn an_issuer_is_the_same_to_all_who_read_it() {
        let read = AuthParameters::read(json!({"oidc_config": {"Issuer": " https://idp\n"}}), "p").unwrap();
        assert_eq!(read.oidc_config.unwrap().issuer, "https://idp");
    }

    #[test]
    fn a_member_that_does_not_fit_is_named() {
        for (config, field) in [
            (json!([]), "p.oidc_config"),
            (json!({"Issuer": 1}), "p.oidc_config.Issuer"),
            (json!({"Scopes": "a b"}), "p.oidc_config.Scopes"),
            (json!({"Scopes": ["a", 1]}), "p.oidc_config.Scopes[1]"),
            (json!({"AllowPrivateIP": "true"}), "p.oidc_config.AllowPrivateIP"),
        ] {
            assert_eq!(AuthParameters::read(json!({"oidc_config": config}), "p").unwrap_err().field, field);
        }
    }

    #[test]
    fn a_client_secret_is_not_shown() {
        let shown = format!("{:?}", OidcConfig { client_secret: "hunter2".into(), ..OidcConfig::default() });
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
