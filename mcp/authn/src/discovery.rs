//! Where a provider has its keys (OpenID Connect Discovery 1.0 §4).

use serde::Deserialize;

/// Where the metadata of `issuer` is.
pub(crate) fn metadata_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.strip_suffix('/').unwrap_or(issuer))
}

/// The URL of the key set, as the metadata of `issuer` names it.
///
/// # Errors
/// The document is no metadata, or that of another issuer: whoever could put one here would choose the keys (§4.3).
pub(crate) fn jwks_url(document: &[u8], issuer: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Metadata {
        issuer: String,
        jwks_uri: String,
    }
    let found: Metadata =
        serde_json::from_slice(document).map_err(|error| format!("is no OpenID Connect metadata: {error}"))?;
    if found.issuer != issuer {
        return Err(format!("is of the issuer {:?}, not of {issuer:?}", found.issuer));
    }
    Ok(found.jwks_uri)
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
            (b"<html>", "https://i", "is no OpenID Connect metadata"),
        ] {
            assert!(jwks_url(document, issuer).unwrap_err().contains(problem));
        }
    }
}
