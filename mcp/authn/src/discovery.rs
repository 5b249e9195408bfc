//! Metadata of providers (OpenID Connect Discovery 1.0 §4, RFC 8414).

use serde::Deserialize;
use serde_json::{Map, Value};

/// Where the metadata of `issuer` is, as OpenID Connect has it.
pub fn metadata_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.strip_suffix('/').unwrap_or(issuer))
}

/// A document with the metadata of a provider. Compare its issuer with the one that was asked for before anything else is read.
#[derive(Clone, Debug, Deserialize)]
pub struct ProviderMetadata {
    /// The issuer that the document says it is of.
    pub issuer: String,
    jwks_uri: Option<String>,
    /// Members that some readers need: one that has an unexpected type is no reason not to log in.
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl ProviderMetadata {
    /// Reads `document`.
    ///
    /// # Errors
    /// The document is no metadata of any issuer.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(document).map_err(|error| format!("is no OpenID Connect metadata: {error}"))
    }

    /// The member `name`, if it is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.others.get(name)?.as_str()
    }

    /// The texts in the member `name`, if it is a list.
    pub fn list(&self, name: &str) -> Option<Vec<&str>> {
        Some(self.others.get(name)?.as_array()?.iter().filter_map(Value::as_str).collect())
    }

    /// Whether the member `name` is `true`.
    pub fn says(&self, name: &str) -> bool {
        self.others.get(name) == Some(&Value::Bool(true))
    }
}

/// The URL of the key set, as the metadata of `issuer` names it.
///
/// # Errors
/// The document is no metadata, or that of another issuer: whoever could put one here would choose the keys (§4.3).
pub(crate) fn jwks_url(document: &[u8], issuer: &str) -> Result<String, String> {
    let found = ProviderMetadata::parse(document)?;
    if found.issuer != issuer {
        return Err(format!("is of the issuer {:?}, not of {issuer:?}", found.issuer));
    }
    found.jwks_uri.ok_or_else(|| "is no OpenID Connect metadata: it has no jwks_uri".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_must_be_the_issuers_own() {
        assert_eq!(metadata_url("https://i/realms/x/"), "https://i/realms/x/.well-known/openid-configuration");
        assert_eq!(metadata_url("https://i"), "https://i/.well-known/openid-configuration");
        let document = br#"{"issuer":"https://i","jwks_uri":"https://i/keys","response_types_supported":["code"]}"#;
        assert_eq!(jwks_url(document, "https://i").unwrap(), "https://i/keys");
        for (document, issuer, problem) in [
            (&document[..], "https://i/", "is of the issuer"),
            (document, "https://other", "is of the issuer"),
            (br#"{"issuer":"https://i"}"#, "https://i", "jwks_uri"),
            (
                br#"{"issuer":"https://x","jwks_uri":"https://i/keys","issuer":"https://i"}"#,
                "https://i",
                "duplicate field",
            ),
            (b"<html>", "https://i", "is no OpenID Connect metadata"),
        ] {
            assert!(jwks_url(document, issuer).unwrap_err().contains(problem));
        }
    }

    #[test]
    fn members_of_unexpected_types_count_as_absent() {
        let document = br#"{"issuer":"https://i","a":"text","b":["x",1,"y"],"c":true,"d":{}}"#;
        let found = ProviderMetadata::parse(document).unwrap();
        assert_eq!((found.text("a"), found.text("b"), found.text("none")), (Some("text"), None, None));
        assert_eq!((found.list("b"), found.list("a")), (Some(vec!["x", "y"]), None));
        assert_eq!((found.says("c"), found.says("a"), found.says("d")), (true, false, false));
    }
}
