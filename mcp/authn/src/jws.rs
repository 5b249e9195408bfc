//! A signed token taken apart (RFC 7515 §3.1, RFC 7519 §3).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

/// The parts of a JWT. Nothing of it is verified.
#[derive(Debug)]
pub(crate) struct Jws<'a> {
    pub(crate) header: Header,
    pub(crate) claims: Map<String, Value>,
    /// The signed bytes.
    pub(crate) signed: &'a str,
    /// In base64url.
    pub(crate) signature: &'a str,
}

/// The members of a header that count.
#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub(crate) alg: String,
    pub(crate) kid: Option<String>,
    /// The type of the token.
    pub(crate) typ: Option<String>,
    /// Extensions that must be understood; none is.
    pub(crate) crit: Option<IgnoredAny>,
}

impl<'a> Jws<'a> {
    /// Takes `token` apart; `None` where it is no JWT at all, and so an opaque token.
    pub(crate) fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(Self { header: part(header)?, claims: part(claims)?, signed, signature })
    }

    /// The key that it names.
    pub(crate) fn kid(&self) -> Option<&str> {
        self.header.kid.as_deref().filter(|kid| !kid.is_empty())
    }
}

/// The claims of `token` as it has them, for telling why it is refused: nobody has verified them, so they open nothing.
/// `None` where it is no JWT.
pub fn unverified_claims(token: &str) -> Option<Map<String, Value>> {
    Jws::parse(token).map(|jws| jws.claims)
}

fn part<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str, signature: &str) -> String {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        format!("{header}.{claims}.{signature}")
    }

    #[test]
    fn a_jwt_is_told_from_an_opaque_token() {
        let alg = r#"{"alg":"RS256","typ":"at+jwt"}"#;
        for (token, jwt) in [
            (token(alg, r#"{"sub":"a"}"#, "c2ln"), true),
            (token(r#"{"alg":"none"}"#, "{}", ""), true),
            (token(r#"{"typ":"JWT"}"#, "{}", "c2ln"), false),
            (token(r#"{"alg":"RS256","alg":"none"}"#, "{}", "c2ln"), false),
            (token(r#"{"alg":1}"#, "{}", "c2ln"), false),
            (token(r#"{"alg":"RS256","typ":1}"#, "{}", "c2ln"), false),
            (token(alg, "[]", "c2ln"), false),
            (token(alg, "{}", "c2l="), false),
            (token(alg, "{}", "c2ln.c2ln"), false),
            ("opaque".to_owned(), false),
            ("a.b.c".to_owned(), false),
            ("..".to_owned(), false),
        ] {
            assert_eq!(Jws::parse(&token).is_some(), jwt, "{token}");
        }
    }
}
