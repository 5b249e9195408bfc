//! Issued pairs, which rustls accepts, and faults of stored pairs, each with its name.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{
    Ca, Certificate, CertificateParams, Pair, PairProblem, PkiError, Usage, bundle_fingerprints, check_server_pair,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, crypto::aws_lc_rs};

const DAY: SignedDuration = SignedDuration::from_hours(24);
const MIN_LEFT: SignedDuration = SignedDuration::from_hours(30 * 24);

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn days(n: i32) -> Timestamp {
    start() + DAY * n
}

fn ca() -> Ca {
    Ca::generate("test ca", start(), days(3650)).unwrap()
}

fn names() -> Vec<String> {
    vec!["hooks.team.svc".to_owned(), "hooks.team.svc.cluster.local".to_owned()]
}

fn params(dns_names: &[String], usage: Usage) -> CertificateParams<'_> {
    CertificateParams {
        common_name: "hooks",
        organizations: &[],
        dns_names,
        ip_addresses: &[],
        not_before: start(),
        not_after: days(365),
        usage,
    }
}

fn server(ca: &Ca) -> Pair {
    ca.issue(&params(&names(), Usage::Server)).unwrap()
}

fn check(pair: &Pair, ca_pem: &str, wanted: &[String], now: Timestamp) -> Result<Certificate, PairProblem> {
    check_server_pair(pair.cert_pem.as_bytes(), pair.key_pem.as_bytes(), ca_pem.as_bytes(), wanted, now, MIN_LEFT)
}

fn roots(ca: &Ca) -> Arc<RootCertStore> {
    let mut store = RootCertStore::empty();
    store.add(CertificateDer::from_pem_slice(ca.cert_pem().as_bytes()).unwrap()).unwrap();
    Arc::new(store)
}

fn unix(time: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(time.as_second().try_into().unwrap()))
}

#[test]
fn rustls_accepts_a_server_chain_by_dns_name_and_by_address() {
    let ca = ca();
    let address: IpAddr = "127.0.0.1".parse().unwrap();
    let pair = ca.issue(&CertificateParams { ip_addresses: &[address], ..params(&names(), Usage::Server) }).unwrap();
    let leaf = CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(&ca), provider.clone()).build().unwrap();
    let verify = |name: &str, at| {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&leaf, &[], &name, &[], unix(at)).is_ok()
    };
    for name in ["hooks.team.svc", "hooks.team.svc.cluster.local", "127.0.0.1"] {
        assert!(verify(name, days(1)), "{name}");
    }
    assert!(!verify("other.team.svc", days(1)));
    assert!(!verify("hooks.team.svc", days(366)));
    // The key is one that a rustls server can load, and it is the certificate's.
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf], key)
        .unwrap();
}

#[test]
fn rustls_accepts_a_client_certificate_with_two_groups_at_most() {
    let ca = ca();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(&ca), provider).build().unwrap();
    let long = "g".repeat(300);
    for groups in [vec![], vec!["one"], vec!["one", "two"], vec![long.as_str(), "ünï"]] {
        let pair = ca
            .issue(&CertificateParams { common_name: "anna", organizations: &groups, ..params(&[], Usage::Client) })
            .unwrap();
        let leaf = CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap();
        verifier.verify_client_cert(&leaf, &[], unix(days(1))).unwrap();
        let read = Certificate::from_pem(pair.cert_pem.as_bytes()).unwrap();
        assert_eq!(
            (read.common_name.as_str(), read.organizations),
            ("anna", groups.into_iter().map(str::to_owned).collect())
        );
    }
    let groups = ["one", "two", "three"];
    let refused = ca.issue(&CertificateParams { organizations: &groups, ..params(&[], Usage::Client) }).unwrap_err();
    assert_eq!(refused.to_string(), "cannot make the certificate: a subject has two organizations at most");
    // A server's certificate does not serve as a client's.
    let leaf = CertificateDer::from_pem_slice(server(&ca).cert_pem.as_bytes()).unwrap().into_owned();
    assert!(verifier.verify_client_cert(&leaf, &[], unix(days(1))).is_err());
}

#[test]
fn a_stored_authority_issues_under_the_same_certificate_again() {
    let made = ca();
    let again = Ca::from_pem(made.cert_pem(), made.key_pem()).unwrap();
    assert_eq!(again.certificate(), made.certificate());
    assert_eq!(again.certificate().not_after, days(3650));
    let pair = server(&again);
    check(&pair, made.cert_pem(), &names(), days(1)).unwrap();
}

#[test]
fn an_authority_that_does_not_fit_is_refused() {
    let (one, two) = (ca(), ca());
    let leaf = server(&one);
    let refusal = |cert: &str, key: &str| Ca::from_pem(cert, key).unwrap_err();
    assert!(matches!(refusal(one.cert_pem(), two.key_pem()), PkiError::KeyMismatch));
    assert!(matches!(refusal(&leaf.cert_pem, &leaf.key_pem), PkiError::NotACa(name) if name == "hooks"));
    assert!(matches!(refusal("", one.key_pem()), PkiError::Certificate(_)));
    assert!(matches!(refusal(one.cert_pem(), "garbage"), PkiError::Key(_)));
    assert!(matches!(Ca::generate("ca", days(2), days(1)), Err(PkiError::Validity { .. })));
    let bad = [String::from("nämë")];
    assert!(matches!(one.issue(&params(&bad, Usage::Server)), Err(PkiError::Issue(_))));
}

#[test]
fn a_good_pair_passes_and_says_what_it_holds() {
    let ca = ca();
    let leaf = check(&server(&ca), ca.cert_pem(), &names(), days(1)).unwrap();
    assert_eq!((leaf.not_before, leaf.not_after), (start(), days(365)));
    assert_eq!((leaf.dns_names, leaf.is_ca), (names(), false));
}

/// D3: a pair is reused only while nothing of this holds, and each reason is a sentence.
#[test]
fn each_problem_of_a_pair_is_named() {
    let (ca, other) = (ca(), ca());
    let short = Ca::generate("test ca", start(), days(10)).unwrap();
    let good = server(&ca);
    let client = ca.issue(&params(&names(), Usage::Client)).unwrap();
    let swapped = Pair { key_pem: server(&ca).key_pem, ..good.clone() };
    let authority = Pair { cert_pem: ca.cert_pem().to_owned(), key_pem: ca.key_pem().to_owned() };
    let text = |cert: &str, key: &str| Pair { cert_pem: cert.to_owned(), key_pem: key.to_owned() };
    let more = [names(), vec!["new.team.svc".to_owned()]].concat();

    #[rustfmt::skip]
    let cases = [
        ("empty certificate", text("", &good.key_pem), ca.cert_pem(), names(), days(1), "the certificate cannot be read: "),
        ("garbage certificate", text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &good.key_pem), ca.cert_pem(), names(), days(1), "the certificate cannot be read: "),
        ("empty key", text(&good.cert_pem, ""), ca.cert_pem(), names(), days(1), "the private key cannot be read: "),
        ("empty bundle", good.clone(), "", names(), days(1), "the CA bundle cannot be read: "),
        ("another key", swapped, ca.cert_pem(), names(), days(1), "the private key does not belong to the certificate"),
        ("client only", client, ca.cert_pem(), names(), days(1), "the certificate is not one for servers"),
        ("an authority", authority, ca.cert_pem(), names(), days(1), "the certificate is not one for servers"),
        ("too early", good.clone(), ca.cert_pem(), names(), days(-1), "the certificate is not valid before 2026-01-01T00:00:00Z"),
        ("too late", good.clone(), ca.cert_pem(), names(), days(366), "the certificate expired at 2027-01-01T00:00:00Z"),
        ("a name missing", good.clone(), ca.cert_pem(), more, days(1), "the certificate does not name 'new.team.svc' (it names: hooks.team.svc, hooks.team.svc.cluster.local)"),
        ("another CA of the same name", good.clone(), other.cert_pem(), names(), days(1), "the CA bundle holds a 'CN=test ca' with another key than the one that signed the certificate"),
        ("an expired CA", server(&short), short.cert_pem(), names(), days(20), "the CA 'CN=test ca' expired at 2026-01-11T00:00:00Z"),
        ("a month left", good.clone(), ca.cert_pem(), names(), days(335), "the certificate ends at 2027-01-01T00:00:00Z, in less than 720 hours"),
    ];
    for (case, pair, bundle, wanted, now, expected) in cases {
        let problem = check(&pair, bundle, &wanted, now).unwrap_err().to_string();
        assert!(problem.starts_with(expected), "{case}: {problem}");
    }
    assert!(check(&good, ca.cert_pem(), &names(), days(334)).is_ok(), "one day more than a month is enough");
}

#[test]
fn a_pair_is_good_under_a_bundle_of_several_authorities() {
    let (old, new) = (ca(), ca());
    let union = format!("# old\n{}\n{}", old.cert_pem(), new.cert_pem());
    for pair in [server(&old), server(&new)] {
        check(&pair, &union, &names(), days(1)).unwrap();
    }
}

// As an issuer that is self-signed makes them.
#[test]
fn a_pair_is_good_under_a_bundle_that_holds_its_certificate() {
    let pair = server(&ca());
    check(&pair, &pair.cert_pem, &names(), days(1)).unwrap();
}

#[test]
fn a_wildcard_covers_one_label() {
    let ca = ca();
    let pair = ca.issue(&params(&["*.team.svc".to_owned()], Usage::Both)).unwrap();
    for (name, covered) in
        [("a.team.svc", true), ("A.Team.svc", true), ("a.b.team.svc", false), ("team.svc", false), (".team.svc", false)]
    {
        assert_eq!(check(&pair, ca.cert_pem(), &[name.to_owned()], days(1)).is_ok(), covered, "{name}");
    }
}

#[test]
fn bundles_compare_by_what_they_trust_not_by_their_bytes() {
    let (a, b) = (ca(), ca());
    let of = |text: &str| bundle_fingerprints(text.as_bytes()).unwrap();
    let ab = of(&format!("{}{}", a.cert_pem(), b.cert_pem()));
    assert_eq!(ab, of(&format!("comment\n{}\r\n{}{}", b.cert_pem(), a.cert_pem(), b.cert_pem())));
    assert_ne!(ab, of(a.cert_pem()));
    assert!(ab.contains(&a.certificate().fingerprint));
    assert!(bundle_fingerprints(b"nothing here").is_err());
}

#[test]
fn debug_shows_no_key() {
    let ca = ca();
    let shown = format!("{ca:?} {:?}", server(&ca));
    assert!(!shown.contains("PRIVATE"), "{shown}");
}

/// The certificate with the first place of `from` after `skip` others replaced.
fn damaged(pem: &str, skip: usize, from: &[u8], to: &[u8]) -> String {
    let mut der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
    let at = der.windows(from.len()).enumerate().filter(|(_, window)| *window == from).nth(skip).unwrap().0;
    der.splice(at..at + from.len(), to.iter().copied());
    pem::encode(&pem::Pem::new("CERTIFICATE", der))
}

#[test]
fn an_authority_whose_leaves_would_not_verify_is_refused() {
    let ca = Ca::generate("test ca", start(), days(3650)).unwrap();
    let cases: [(usize, &[u8], &[u8]); 6] = [
        // The subject's set holds a set, which is read, and never written so again.
        (1, &[0x30, 0x0e, 0x06, 3, 0x55, 4, 3], &[0x31, 0x0e, 0x06, 3, 0x55, 4, 3]),
        // The subject is sets of nothing.
        (1, b"\x31\x10\x30\x0e\x06\x03\x55\x04\x03\x0c\x07test ca", &[0x31, 0].repeat(9)),
        (1, b"test ca", b"test\xff\xfe "),
        // The subject is of a kind (2.41.4.3) that readers take for what no identifier is.
        (1, &[0x55, 4, 3], &[0x79, 4, 3]),
        // The key is said to be on another curve (secp256k1) than it is.
        (0, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7], &[0x2b, 0x81, 4, 0, 0x0a, 3, 1, 7]),
        // Its key usage is to sign lists of revoked certificates, and none else.
        (0, &[0x55, 0x1d, 0x0f, 1, 1, 0xff, 4, 4, 3, 2, 1, 6], &[0x55, 0x1d, 0x0f, 1, 1, 0xff, 4, 4, 3, 2, 1, 2]),
    ];
    for (skip, from, to) in cases {
        let cert = damaged(ca.cert_pem(), skip, from, to);
        let error = Ca::from_pem(&cert, ca.key_pem()).map(|_| ()).unwrap_err();
        assert!(matches!(error, PkiError::Certificate(_) | PkiError::KeyMismatch), "{error}");
    }
}

/// `openssl ecparam -genkey` writes the curve before the key, others put certificate and key into one file. Go, and with it
/// the API server and kubectl, look for the key in it.
#[test]
fn a_key_is_found_behind_what_stands_before_it() {
    let ca = ca();
    let pair = server(&ca);
    let curve = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    for before in [curve, pair.cert_pem.as_str(), "Bag Attributes\n    friendlyName: hooks\n"] {
        let found = Pair { key_pem: format!("{before}{}", pair.key_pem), ..pair.clone() };
        check(&found, ca.cert_pem(), &names(), days(1)).unwrap();
        Ca::from_pem(ca.cert_pem(), &format!("{before}{}", ca.key_pem())).unwrap();
    }
    let sealed = Pair { key_pem: pair.key_pem.replace("PRIVATE", "ENCRYPTED PRIVATE"), ..pair };
    let problem = check(&sealed, ca.cert_pem(), &names(), days(1)).unwrap_err().to_string();
    assert!(problem.ends_with("it holds no private key in PEM, or one with a passphrase"), "{problem}");
}

/// Clients check what an authority has signed, not how it signed itself: many old roots did so with SHA-1.
#[test]
fn a_weak_signature_is_one_that_clients_check() {
    let weak = |pem: &str| Certificate::from_pem(pem.as_bytes()).unwrap().weaknesses.join("; ").contains("SHA-1");
    assert!(weak(SIGNED_WITH_SHA1));
    assert!(!weak(ROOT_WITH_SHA1));
}

const ROOT_WITH_SHA1: &str = "\
-----BEGIN CERTIFICATE-----
MIICBDCCAW2gAwIBAgIULd4rMRxuf5DwpnJneHggDc4Xf1MwDQYJKoZIhvcNAQEF
BQAwEzERMA8GA1UEAwwIb2xkIHJvb3QwIBcNMjYxMTIxMTcyODE0WhgPMjEyNjEw
MjgxNzI4MTRaMBMxETAPBgNVBAMMCG9sZCByb290MIGfMA0GCSqGSIb3DQEBAQUA
A4GNADCBiQKBgQDK5bz4LCirOlG3veX560h6/sniuVmSJGOsO03RH+jL0nW22Xjf
0H1QQTgrdZhTj6Sw9GGIc25PjLgm80LONcJzpOdujojJYfrul48adG4oiijJ7UoY
KyQCaMUJUYYyemqEmxpxhjhuGk52I30/c74cBOKEcJHNMVlF+PcMorRCtwIDAQAB
o1MwUTAdBgNVHQ4EFgQU18vAM1L771ThVw+UstzntQ2laYQwHwYDVR0jBBgwFoAU
18vAM1L771ThVw+UstzntQ2laYQwDwYDVR0TAQH/BAUwAwEB/zANBgkqhkiG9w0B
AQUFAAOBgQCxWfUMUDiFNOzZeDy/LUCEjcVYtPR22kHjeCretj2jC3pk7QitgSkj
gWggTifqLDyjhJa9wTT54+knlbeMDenzk2iaJmJwQoqwuAN+t0rnbi3sC8DK63ZU
GL2JqMKQPztBfpdn/eOZchicvaSQiR3M1ibEPFNAKvQpFhQ7AxSP8A==
-----END CERTIFICATE-----
";
const SIGNED_WITH_SHA1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBkjCB/AIBATANBgkqhkiG9w0BAQUFADATMREwDwYDVQQDDAhvbGQgcm9vdDAg
Fw0yNjExMjExNzI4MTRaGA8yMTI2MTAyODE3MjgxNFowDzENMAsGA1UEAwwEbGVh
ZjCBnzANBgkqhkiG9w0BAQEFAAOBjQAwgYkCgYEAyuW8+CwoqzpRt73l+etIev7J
4rlZkiRjrDtN0R/oy9J1ttl439B9UEE4K3WYU4+ksPRhiHNuT4y4JvNCzjXCc6Tn
bo6IyWH67pePGnRuKIooye1KGCskAmjFCVGGMnpqhJsacYY4bhpOdiN9P3O+HATi
hHCRzTFZRfj3DKK0QrcCAwEAATANBgkqhkiG9w0BAQUFAAOBgQC16hmB2heMC1rG
3zDOr68Zimr+R7gVtTWvaQynUteUoQyyQXV3W8aBA/sXEozIc3B0CwKPXcXmJbxO
r+ib/m7DPOXy0cTbkHxOoA5Vn9E05bIZsFF0YlBFnBscpAxQJ+cPa9oDZoI1p8BA
DaovPPbb2cR6qQWAIGSdPmQk4U0Ueg==
-----END CERTIFICATE-----
";
