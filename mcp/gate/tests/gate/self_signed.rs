//! A webhook whose certificate is its own authority, as `openssl req -x509` makes it.

use std::process::Command;

use portcullis_pki::Pair;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use serde_json::json;

use crate::endpoint::{Endpoint, Reply};
use crate::support::{CALL, Files, Proxy, chain, entry, server, webhook};

/// A certificate for `name` that is signed by its own key.
fn self_signed(name: &str, change: fn(&mut CertificateParams)) -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    Pair { cert_pem: params.self_signed(&key).unwrap().pem(), key_pem: key.serialize_pem() }
}

/// The command line of openssl's manual; `None` on a machine without openssl.
fn openssl() -> Option<Pair> {
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name);
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=webhook", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(path("tls.key"))
        .arg("-out")
        .arg(path("tls.crt"))
        .output()
        .ok()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    Some(Pair { cert_pem: read("tls.crt"), key_pem: read("tls.key") })
}

/// The status of a call through a webhook that shows `shown` to a proxy that trusts `trusted`.
async fn call(shown: &Pair, trusted: &str) -> u16 {
    let files = Files::new();
    files.write("/ca.crt", trusted);
    let endpoint = Endpoint::start(Some(server(shown, None)), |_| Reply::allow()).await;
    let hook = webhook(&endpoint.url, "fail", json!({}));
    let proxy = Proxy::new(&files, chain(vec![entry("validating-webhook", vec![hook])]));
    let status = proxy.post(CALL).await.status;
    assert_eq!(endpoint.calls().len(), usize::from(status == 200));
    status
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_not_refused() {
    let local = |change| self_signed("127.0.0.1", change);
    let made = [
        ("an authority", Some(local(|_| {}))),
        (
            "an authority that may only sign",
            Some(local(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign])),
        ),
        ("a server", Some(local(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]))),
        ("no authority", Some(local(|params| params.is_ca = IsCa::ExplicitNoCa))),
        ("openssl's", openssl()),
    ];
    for (which, pair) in made {
        let Some(pair) = pair else { continue };
        assert_eq!(call(&pair, &pair.cert_pem).await, 200, "{which}");
        let other = local(|_| {});
        let bundle = format!("{}{}", other.cert_pem, pair.cert_pem);
        assert_eq!(call(&pair, &bundle).await, 200, "{which}, second in the bundle");
    }
}

#[tokio::test]
async fn a_certificate_in_the_bundle_is_not_taken_for_another_server_time_or_purpose() {
    for (which, pair) in [
        ("another name", self_signed("127.0.0.2", |_| {})),
        ("expired", self_signed("127.0.0.1", |params| params.not_after = date_time_ymd(2020, 1, 1))),
        ("not valid yet", self_signed("127.0.0.1", |params| params.not_before = date_time_ymd(2100, 1, 1))),
        (
            "for clients",
            self_signed("127.0.0.1", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
        ),
    ] {
        assert_eq!(call(&pair, &pair.cert_pem).await, 403, "{which}");
    }
    // A CA of the same name that is not the one in the bundle.
    let (shown, trusted) = (self_signed("127.0.0.1", |_| {}), self_signed("127.0.0.1", |_| {}));
    assert_eq!(call(&shown, &trusted.cert_pem).await, 403);
}
