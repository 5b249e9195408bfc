//! The keys of a provider, and the signatures that they verify (RFC 7517, RFC 7518 §3.1, RFC 8037).

use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;
use serde_json::Value;

use crate::jws::Jws;

/// Keys of one set that are looked at.
const MAX_KEYS: usize = 100;
/// Characters that an error has of each member of a token's header.
const MAX_SHOWN: usize = 64;

/// The keys that a provider publishes.
#[derive(Debug)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
    /// The document that they were read from.
    pub(crate) document: Bytes,
}

/// Why a signature counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unverified {
    #[error("the signing algorithm {0:?} is not taken")]
    Algorithm(String),
    #[error("the token is of the type {0:?}, which is none of an access token")]
    Type(String),
    #[error("the token names critical extensions, and none is known")]
    Critical,
    #[error("the token's header has no kid, and {0} keys of the provider are for its algorithm")]
    NoKid(usize),
    #[error("no key of the provider has the kid {0:?}")]
    UnknownKid(String),
    #[error("the key {kid:?} is not for signatures by {algorithm}")]
    Unfit { kid: String, algorithm: String },
    #[error("the signature is wrong")]
    Signature,
}

#[derive(Debug)]
struct Key {
    kid: Option<String>,
    /// The only algorithm that it is for, where its provider says so.
    algorithm: Option<String>,
    public: PublicKey,
}

enum PublicKey {
    Rsa(DecodingKey),
    P256(DecodingKey),
    P384(DecodingKey),
    /// An uncompressed point; `jsonwebtoken` does not have the curve.
    P521(Vec<u8>),
    Ed25519(DecodingKey),
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

// === impl KeySet ===

impl KeySet {
    /// Reads a set. Keys of a kind that is not taken, or for something else than signatures are left out.
    ///
    /// # Errors
    /// It is no key set, or has more than a hundred keys.
    pub(crate) fn parse(document: Bytes) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(&document).map_err(|error| format!("is no key set: {error}"))?;
        if set.keys.len() > MAX_KEYS {
            return Err(format!("has {} keys, more than {MAX_KEYS}", set.keys.len()));
        }
        let jwks = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        Ok(Self { keys: jwks.filter_map(Key::of).collect(), document })
    }

    /// The number of its keys that can verify a signature.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Verifies the signature of `jws` with the key that it names. One that names none is verified with the only key
    /// for its algorithm, where there is one (OpenID Connect Core §10.1).
    ///
    /// # Errors
    /// Why its claims must not be believed.
    pub(crate) fn verify(&self, jws: &Jws<'_>) -> Result<(), Unverified> {
        let algorithm = jws.header.alg.as_str();
        if !ALGORITHMS.contains(&algorithm) {
            return Err(Unverified::Algorithm(cut(algorithm)));
        }
        if let Some(typ) = jws.header.typ.as_deref()
            && !TYPES.iter().any(|taken| taken.eq_ignore_ascii_case(typ))
        {
            return Err(Unverified::Type(cut(typ)));
        }
        if jws.header.crit.is_some() {
            return Err(Unverified::Critical);
        }
        let fit: Vec<&Key> = match jws.kid() {
            None => {
                let fit: Vec<&Key> = self.keys.iter().filter(|key| key.is_for(algorithm)).collect();
                if fit.len() != 1 {
                    return Err(Unverified::NoKid(fit.len()));
                }
                fit
            }
            Some(kid) => {
                let mut named = self.keys.iter().filter(|key| key.kid.as_deref() == Some(kid)).peekable();
                if named.peek().is_none() {
                    return Err(Unverified::UnknownKid(cut(kid)));
                }
                let fit: Vec<&Key> = named.filter(|key| key.is_for(algorithm)).collect();
                if fit.is_empty() {
                    return Err(Unverified::Unfit { kid: cut(kid), algorithm: algorithm.to_owned() });
                }
                fit
            }
        };
        if fit.into_iter().any(|key| key.public.verifies(algorithm, jws)) { Ok(()) } else { Err(Unverified::Signature) }
    }
}

/// A member of a header for the log, shortened and escaped: the sender of a token chooses it.
fn cut(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

/// The types of access tokens (RFC 9068 §2.1) and of tokens in general (RFC 7519 §5.1). A provider signs others by the
/// same keys, such as logout tokens, and they are not for opening something.
const TYPES: [&str; 4] = ["JWT", "application/jwt", "at+jwt", "application/at+jwt"];

/// The asymmetric algorithms. A key that everybody can read must never be taken for the secret of a symmetric one.
const ALGORITHMS: [&str; 11] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"];

// === impl Key ===

impl Key {
    fn of(jwk: Jwk) -> Option<Self> {
        let signs = jwk.r#use.as_deref().is_none_or(|usage| usage == "sig")
            && jwk.key_ops.as_ref().is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
        let kid = jwk.kid.clone().filter(|kid| !kid.is_empty());
        signs.then_some(())?;
        Some(Self { kid, algorithm: jwk.alg.clone(), public: PublicKey::of(&jwk)? })
    }

    /// Whether its provider means it for signatures by `algorithm`, and its kind fits.
    fn is_for(&self, algorithm: &str) -> bool {
        let taken = self.public.algorithms();
        // RFC 9864 gives EdDSA over this curve a second name.
        let same = |own: &str| own == algorithm || taken == EDWARDS && taken.contains(&own);
        taken.contains(&algorithm) && self.algorithm.as_deref().is_none_or(same)
    }
}

// === impl PublicKey ===

const EDWARDS: &[&str] = &["EdDSA", "Ed25519"];

impl PublicKey {
    fn of(jwk: &Jwk) -> Option<Self> {
        let (x, y) = (jwk.x.as_deref(), jwk.y.as_deref());
        Some(match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Self::Rsa(DecodingKey::from_rsa_components(jwk.n.as_deref()?, jwk.e.as_deref()?).ok()?),
            ("EC", Some("P-256")) => Self::P256(DecodingKey::from_ec_components(x?, y?).ok()?),
            ("EC", Some("P-384")) => Self::P384(DecodingKey::from_ec_components(x?, y?).ok()?),
            ("EC", Some("P-521")) => {
                let [x, y] = [x?, y?].map(|half| URL_SAFE_NO_PAD.decode(half));
                Self::P521([&[4], x.ok()?.as_slice(), y.ok()?.as_slice()].concat())
            }
            ("OKP", Some("Ed25519")) => Self::Ed25519(DecodingKey::from_ed_components(x?).ok()?),
            _ => return None,
        })
    }

    /// The algorithms that a key of this kind can be for.
    fn algorithms(&self) -> &'static [&'static str] {
        match self {
            Self::Rsa(_) => &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
            Self::P256(_) => &["ES256"],
            Self::P384(_) => &["ES384"],
            Self::P521(_) => &["ES512"],
            Self::Ed25519(_) => EDWARDS,
        }
    }

    /// Whether `jws` was signed by `algorithm`, which is one of [`algorithms`](Self::algorithms), with the private
    /// half.
    fn verifies(&self, algorithm: &str, jws: &Jws<'_>) -> bool {
        let algorithm = if algorithm == "Ed25519" { Ok(Algorithm::EdDSA) } else { algorithm.parse() };
        match (self, algorithm) {
            (Self::P521(point), _) => {
                let signature = URL_SAFE_NO_PAD.decode(jws.signature).unwrap_or_default();
                let key = UnparsedPublicKey::new(&ECDSA_P521_SHA512_FIXED, point);
                key.verify(jws.signed.as_bytes(), &signature).is_ok()
            }
            (Self::Rsa(key) | Self::P256(key) | Self::P384(key) | Self::Ed25519(key), Ok(algorithm)) => {
                crypto::verify(jws.signature, jws.signed.as_bytes(), key, algorithm).unwrap_or(false)
            }
            (_, Err(_)) => false,
        }
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.algorithms()[0])
    }
}

#[cfg(test)]
mod tests;
