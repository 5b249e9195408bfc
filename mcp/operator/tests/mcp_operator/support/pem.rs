//! Real certificates and keys for Secrets.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its part; in a test this is the failure")]

use std::sync::LazyLock;

use portcullis_pki::{Ca, CertificateParams, Pair, Usage};

static AUTHORITY: LazyLock<Ca> = LazyLock::new(|| {
    let (from, to) = validity();
    Ca::generate("tests", from, to).unwrap()
});

fn validity() -> (jiff::Timestamp, jiff::Timestamp) {
    ("2026-01-01T00:00:00Z".parse().unwrap(), "2046-01-01T00:00:00Z".parse().unwrap())
}

/// An authority's certificate.
pub(crate) fn authority() -> String {
    AUTHORITY.cert_pem().to_owned()
}

/// A client's certificate and its key, another one each time.
pub(crate) fn client() -> Pair {
    let (not_before, not_after) = validity();
    let wanted = CertificateParams {
        common_name: "proxy",
        organizations: &[],
        dns_names: &[],
        ip_addresses: &[],
        not_before,
        not_after,
        usage: Usage::Client,
    };
    AUTHORITY.issue(&wanted).unwrap()
}
