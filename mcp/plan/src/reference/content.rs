//! The stored form of the values of Secrets and ConfigMaps: a keyed digest of each, and its possible uses. The values
//! are dropped, but for the texts of ConfigMaps that documents of proxies have.

use std::{collections::BTreeMap, fmt, sync::Arc};

use rustls::{
    RootCertStore,
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::ParsedCertificate,
};

use crate::digest::{DigestKey, digest};

/// Per Secret or ConfigMap that exists, by its name: its entries, by their keys.
pub type Entries = BTreeMap<String, BTreeMap<String, Entry>>;

/// The use of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes that nothing more is known of, but that there are some.
    Bytes,
    /// A token, which requests have in a header.
    Token,
    /// The value of a header.
    Header,
    /// A PEM bundle of certificate authorities.
    Authorities,
    /// A PEM certificate.
    Certificate,
    /// The PEM private key that belongs to the certificate under this Secret and key.
    KeyOf {
        /// The Secret with the certificate.
        secret: String,
        /// Its key.
        key: String,
    },
}

/// The stored form of one value of a Secret or ConfigMap.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// A keyed digest of the value.
    pub digest: String,
    /// The value itself, where [`of_text`](Self::of_text) made this.
    pub text: Option<Arc<str>>,
    empty: bool,
    /// Whether it is one word of visible ASCII characters.
    is_word: bool,
    /// Whether it is one line of printable ASCII characters.
    is_line: bool,
    /// The reason why it is no bundle of authorities.
    authorities: Option<String>,
    /// A digest of the public key of the certificate that it is, or why it is none.
    certificate: Result<String, String>,
    /// A digest of the public key to the private key that it is, or why it is none.
    private_key: Result<String, String>,
}

impl Entry {
    /// Looks at a value as the proxy will when it reads the file.
    pub fn of(value: &[u8], key: &DigestKey) -> Self {
        let line = unbroken(value);
        Self {
            digest: key.digest(value),
            text: None,
            // As the proxy looks at it.
            empty: String::from_utf8_lossy(line).trim().is_empty(),
            is_word: line.iter().all(u8::is_ascii_graphic),
            is_line: line.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')),
            authorities: authorities(value).err(),
            certificate: certificate(value),
            private_key: private_key(value),
        }
    }

    /// Looks at a value of a ConfigMap, and keeps it where it is text.
    pub fn of_text(value: &[u8], key: &DigestKey) -> Self {
        Self { text: std::str::from_utf8(value).ok().map(Into::into), ..Self::of(value, key) }
    }

    /// The reason why the value cannot be used as `content`, if there is one. `at` finds the value of another Secret
    /// and key.
    pub fn problem<'a>(&self, content: &Content, at: impl Fn(&str, &str) -> Option<&'a Self>) -> Option<String> {
        if self.empty {
            return Some("is empty".to_owned());
        }
        match content {
            Content::Bytes => None,
            Content::Token => (!self.is_word).then(|| NO_TOKEN.to_owned()),
            Content::Header => (!self.is_line).then(|| NO_HEADER.to_owned()),
            Content::Authorities => self.authorities.clone(),
            Content::Certificate => self.certificate.as_ref().err().cloned(),
            Content::KeyOf { secret, key } => match (&self.private_key, at(secret, key).map(|it| &it.certificate)) {
                (Err(problem), _) => Some(problem.clone()),
                (Ok(own), Some(Ok(certificate))) if own != certificate => {
                    Some(format!("is not the key of the certificate in Secret {secret}/{key}"))
                }
                _ => None,
            },
        }
    }
}

const NO_TOKEN: &str = "is no token; write one word of visible ASCII characters there";
const NO_HEADER: &str = "is no header's value; write one line of printable ASCII characters there";

/// A value without the line breaks at its end, which are those of a file.
fn unbroken(mut value: &[u8]) -> &[u8] {
    while let [rest @ .., b'\r' | b'\n'] = value {
        value = rest;
    }
    value
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("digest", &self.digest).finish_non_exhaustive()
    }
}

// Error messages of libraries may quote the value, so they are not passed on.

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| "is not PEM".to_owned())?;
    if certificates.is_empty() { Err("holds no PEM certificate".to_owned()) } else { Ok(certificates) }
}

fn authorities(pem: &[u8]) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    // The proxy leaves out what it cannot use, and says so.
    match roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten()) {
        (0, 0) => Err("holds no PEM certificate".to_owned()),
        (0, _) => Err("holds no certificate that can be trusted as an authority".to_owned()),
        _ => Ok(()),
    }
}

fn certificate(pem: &[u8]) -> Result<String, String> {
    let chain = certificates(pem)?;
    let first = chain.first().ok_or_else(|| "holds no PEM certificate".to_owned())?;
    let parsed = ParsedCertificate::try_from(first).map_err(|_| "is not a certificate".to_owned())?;
    Ok(digest(parsed.subject_public_key_info().as_ref()))
}

fn private_key(pem: &[u8]) -> Result<String, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| "holds no PEM private key".to_owned())?;
    let key = any_supported_type(&key).map_err(|_| "is not a private key that TLS can use".to_owned())?;
    let public = key.public_key().ok_or_else(|| "has no public key".to_owned())?;
    Ok(digest(public.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that lost its line breaks is all one section label, which the parser quotes.
    #[test]
    fn nothing_of_a_value_is_in_what_is_said_of_it() {
        let secret = "MHcCAQEEIBr3DQEHsecret";
        let values = [
            format!("-----BEGIN EC PRIVATE KEY-----{secret}-----END EC PRIVATE KEY-----"),
            format!("-----BEGIN EC PRIVATE KEY-----\n{secret}\n"),
            format!("-----BEGIN CERTIFICATE-----{secret}-----END CERTIFICATE-----"),
            format!("-----BEGIN CERTIFICATE-----\n{secret}\n-----END CERTIFICATE-----\n"),
            secret.to_owned(),
        ];
        for text in values {
            let value = Entry::of(text.as_bytes(), &DigestKey::new(b"key"));
            let said = [value.authorities.clone(), value.certificate.clone().err(), value.private_key.clone().err()];
            for said in said.into_iter().flatten() {
                let bytes = secret.bytes().take(4).map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
                assert!(!said.contains(&secret[..4]) && !said.contains(&bytes), "{said}");
            }
            assert!(!format!("{value:?}").contains(secret));
        }
    }
}
