//! Keys that sign as a provider does, for tests that need tokens which no real provider gives.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "in a test this is the failure")]

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self as crypto, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A key pair with its name.
#[derive(Clone, Debug)]
pub struct Signer {
    kid: String,
    pair: Arc<Pair>,
}

#[derive(Debug)]
enum Pair {
    Rsa(RsaKeyPair),
    /// With the name of its curve.
    Ec(&'static str, EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    /// A new key of 2048 bits, for the algorithms `RS*` and `PS*`.
    pub fn rsa(kid: &str) -> Self {
        Self::new(kid, Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    /// A new key on P-256, for `ES256`.
    pub fn ec(kid: &str) -> Self {
        Self::on_curve(kid, "P-256", &crypto::ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    /// A new key on P-384, for `ES384`.
    pub fn p384(kid: &str) -> Self {
        Self::on_curve(kid, "P-384", &crypto::ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    /// A new key on P-521, for `ES512`.
    pub fn p521(kid: &str) -> Self {
        Self::on_curve(kid, "P-521", &crypto::ECDSA_P521_SHA512_FIXED_SIGNING)
    }

    /// A new key on Ed25519, for `EdDSA` and its other name, `Ed25519`.
    pub fn ed(kid: &str) -> Self {
        Self::new(kid, Pair::Ed25519(Ed25519KeyPair::generate().unwrap()))
    }

    fn on_curve(kid: &str, curve: &'static str, algorithm: &'static EcdsaSigningAlgorithm) -> Self {
        Self::new(kid, Pair::Ec(curve, EcdsaKeyPair::generate(algorithm).unwrap()))
    }

    fn new(kid: &str, pair: Pair) -> Self {
        Self { kid: kid.to_owned(), pair: Arc::new(pair) }
    }

    /// The public half as a provider publishes it (RFC 7517).
    pub fn jwk(&self) -> Value {
        let mut jwk = match &*self.pair {
            Pair::Rsa(pair) => {
                let public = crypto::RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"kty": "RSA", "n": encode(&public.n), "e": encode(&public.e)})
            }
            Pair::Ec(curve, pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Pair::Ed25519(pair) => json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())}),
        };
        jwk["kid"] = json!(self.kid);
        jwk
    }

    /// A token with these claims, signed by `algorithm`.
    pub fn sign(&self, algorithm: &str, claims: &Value) -> String {
        self.sign_with(algorithm, &json!({"alg": algorithm, "typ": "JWT", "kid": self.kid}), claims)
    }

    /// The same with another header.
    pub fn sign_with(&self, algorithm: &str, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let message = signed.as_bytes();
        let random = SystemRandom::new();
        let signature = match &*self.pair {
            Pair::Rsa(pair) => {
                let padding: &'static dyn crypto::RsaEncoding = match algorithm {
                    "RS384" => &crypto::RSA_PKCS1_SHA384,
                    "RS512" => &crypto::RSA_PKCS1_SHA512,
                    "PS256" => &crypto::RSA_PSS_SHA256,
                    "PS384" => &crypto::RSA_PSS_SHA384,
                    "PS512" => &crypto::RSA_PSS_SHA512,
                    _ => &crypto::RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Ec(_, pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        };
        format!("{signed}.{}", encode(&signature))
    }
}

/// Header and claims of a token, as they are signed (RFC 7515 §5.1).
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()))
}

/// Base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
