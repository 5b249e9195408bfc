//! A certificate that a user makes elsewhere.

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{Ca, CertificateParams, Usage};
use serde_json::{Value, json};

/// An authority's certificate, and the Secret that `generate certificates` gives an example of, with a pair in it.
pub(crate) fn filled(mut example: Value, server_name: &str) -> (String, Value) {
    let (from, to) =
        (Timestamp::now() - SignedDuration::from_hours(1), Timestamp::now() + SignedDuration::from_hours(24 * 90));
    let ca = Ca::generate("a company", from, to).unwrap();
    let wanted = CertificateParams {
        common_name: "",
        organizations: &[],
        dns_names: &[server_name.to_owned()],
        ip_addresses: &[],
        not_before: from,
        not_after: to,
        usage: Usage::Server,
    };
    let pair = ca.issue(&wanted).unwrap();
    for (key, value) in [("tls.crt", &pair.cert_pem), ("tls.key", &pair.key_pem), ("ca.crt", &ca.cert_pem().to_owned())]
    {
        assert!(example["stringData"][key].is_string(), "the example says what {key} is");
        example["stringData"][key] = json!(value);
    }
    (ca.cert_pem().to_owned(), example)
}
