//! The loaders of certificates: what lies in a Secret that anybody may have edited.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use portcullis_pki::rotation::{CaData, Observed, PairData, Phase, RotationTiming, Step, Stored, step};
use portcullis_pki::{
    Ca, Certificate, CertificateParams, PairProblem, TrustProblem, Usage, bundle_fingerprints, check_server_pair,
};

/// Between the parts of a body, as two Secrets have them: `tls.crt`, `tls.key`, `ca.crt` (what is published); `ca.crt`,
/// `ca.key`, `next.crt`, `next.key`, `previous.crt`.
const SEPARATOR: &[u8] = b"\n%%\n";

/// Reads a body as the parts of a Secret, and does with them what an operator does at its start. A part that is no PEM
/// text is taken for the DER inside of one, so that a fuzzer need not learn base64.
///
/// # Panics
/// When a pair is called good that is not, the checks contradict each other, or an authority that was taken up issues
/// what does not verify under it.
pub fn certificates(body: &[u8]) {
    let parts = parts(body);
    let part = |index: usize| parts.get(index).map_or(&[][..], Vec::as_slice);
    for pem in &parts {
        certificate(pem);
    }
    pair(part(0), part(1), part(2));
    for (cert, key) in [(part(0), part(1)), (part(3), part(4)), (part(5), part(6))] {
        authority(cert, key);
    }
    let at = [0, 2, 3, 5, 7].into_iter().filter_map(|index| Certificate::from_pem(part(index)).ok());
    let times: BTreeSet<Timestamp> = at.flat_map(|found| [found.not_before, found.not_after]).collect();
    for now in times.into_iter().chain([Timestamp::UNIX_EPOCH]) {
        rotation(&parts, now);
    }
}

/// The parts of a body, as PEM.
fn parts(body: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    let mut rest = body;
    while parts.len() < 8 {
        let end = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
        let (part, after) = end.map_or((rest, None), |at| (&rest[..at], Some(&rest[at + SEPARATOR.len()..])));
        let label = if [1, 4, 6].contains(&parts.len()) { "PRIVATE KEY" } else { "CERTIFICATE" };
        let der = !part.is_empty() && !part.windows(5).any(|window| window == b"-----");
        parts.push(if der { wrap(label, part) } else { part.to_vec() });
        let Some(after) = after else { break };
        rest = after;
    }
    parts
}

fn wrap(label: &str, der: &[u8]) -> Vec<u8> {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der)).into_bytes()
}

/// The first certificate of a text is one of its bundle, and the same however it is read.
fn certificate(pem: &[u8]) {
    let all = bundle_fingerprints(pem);
    if let Ok(first) = Certificate::from_pem(pem) {
        let all = all.expect("what has a first certificate is a bundle");
        assert!(all.contains(&first.fingerprint), "the first certificate is in the bundle");
        assert_eq!(first.fingerprint.len(), 64);
    }
}

/// A pair that is called good is good, and stays so where more is trusted or less is asked.
fn pair(cert: &[u8], key: &[u8], bundle: &[u8]) {
    let Ok(leaf) = Certificate::from_pem(cert) else {
        let none = check(cert, key, bundle, &[], Timestamp::UNIX_EPOCH, SignedDuration::ZERO);
        return assert!(none.is_err(), "a pair is good without a certificate");
    };
    let names: Vec<String> = leaf.dns_names.iter().filter(|name| !name.contains('*')).cloned().collect();
    let second = SignedDuration::from_secs(1);
    let around = [
        Some(leaf.not_before),
        Some(leaf.not_after),
        leaf.not_before.checked_sub(second).ok(),
        leaf.not_after.checked_add(second).ok(),
    ];
    for now in around.into_iter().flatten() {
        let valid = leaf.not_before <= now && now <= leaf.not_after;
        let month = SignedDuration::from_hours(30 * 24);
        match check(cert, key, bundle, &names, now, month) {
            Ok(said) => {
                assert_eq!(said, leaf, "the leaf is the first certificate");
                assert!(valid && !leaf.is_ca && leaf.not_after.duration_since(now) > month);
                let strange = ["no-name-of.this.certificate.invalid".to_owned()];
                let refused = check(cert, key, bundle, &strange, now, month);
                assert!(matches!(refused, Err(PairProblem::MissingName { .. })), "{refused:?} for a name it has not");
                let refused = check(cert, key, b"", &names, now, month);
                assert!(matches!(refused, Err(PairProblem::Bundle(_))), "{refused:?} under no bundle");
                trusted(cert, key, bundle, &names, now);
            }
            Err(PairProblem::EndsSoon { .. }) => {
                assert!(valid);
                trusted(cert, key, bundle, &names, now);
            }
            Err(PairProblem::Expired { .. } | PairProblem::NotYetValid { .. }) => assert!(!valid),
            // As a log line has it.
            Err(other) => assert!(!other.to_string().is_empty()),
        }
    }
}

/// A bundle that holds more authorities, as one does while a rotation runs, trusts no less.
fn trusted(cert: &[u8], key: &[u8], bundle: &[u8], names: &[String], now: Timestamp) {
    let union = [cert, b"\n", bundle].concat();
    match check(cert, key, &union, names, now, SignedDuration::from_secs(-1)) {
        Ok(_) => {}
        Err(other) => panic!("{other} under a bundle that holds more"),
    }
}

fn check(
    cert: &[u8],
    key: &[u8],
    bundle: &[u8],
    names: &[String],
    now: Timestamp,
    min_left: SignedDuration,
) -> Result<Certificate, PairProblem> {
    check_server_pair(cert, key, bundle, names, now, min_left)
}

/// A leaf that an adopted authority issues verifies under it.
fn authority(cert: &[u8], key: &[u8]) {
    let (Ok(cert), Ok(key)) = (str::from_utf8(cert), str::from_utf8(key)) else { return };
    let Ok(ca) = Ca::from_pem(cert, key) else { return };
    let authority = ca.certificate();
    assert!(authority.is_ca);
    assert!(!format!("{ca:?}").contains(key), "a key is in a text for people");
    let names = ["webhook.team-a.svc".to_owned()];
    let issued = ca.issue(&CertificateParams {
        common_name: "webhook",
        organizations: &[],
        dns_names: &names,
        ip_addresses: &[],
        not_before: authority.not_before,
        not_after: authority.not_after,
        usage: Usage::Server,
    });
    // Nobody can issue for the years that an authority of other years has.
    let Ok(pair) = issued else { return };
    let (leaf, key) = (pair.cert_pem.as_bytes(), pair.key_pem.as_bytes());
    let good = check(leaf, key, cert.as_bytes(), &names, authority.not_before, SignedDuration::from_secs(-1));
    let for_others = matches!(good, Err(PairProblem::Untrusted(TrustProblem::NotForServers { .. })));
    assert!(good.is_ok() || for_others, "{good:?}: a leaf does not verify under the authority that issued it");
}

/// Reads two Secrets, and decides the next step of the rotation.
fn rotation(parts: &[Vec<u8>], now: Timestamp) {
    // An empty part is a key that the Secret does not have.
    let part = |index: usize| parts.get(index).map(Vec::as_slice).filter(|part| !part.is_empty());
    let ca = CaData { ca_crt: part(3), ca_key: part(4), next_crt: part(5), next_key: part(6), previous_crt: part(7) };
    let pair = PairData { tls_crt: part(0), tls_key: part(1), ca_crt: part(2) };
    let names = ["webhook.team-a.svc".to_owned()];
    let Stored { authorities, leaf, publishes_all, .. } = Stored::read(&ca, &pair, &names, now);
    let Ok(mut authorities) = authorities else { return };
    let bundle = authorities.bundle();
    let trusted = bundle_fingerprints(bundle.as_bytes()).expect("what is published is a bundle");
    for anchor in authorities.anchors() {
        let found = anchor.certificate();
        assert!(found.is_ca && found.not_before <= now && now <= found.not_after, "{found:?} is trusted at {now}");
        assert!(trusted.contains(&found.fingerprint), "{found:?} is missing in the bundle");
    }
    let published = pair.ca_crt.and_then(|pem| bundle_fingerprints(pem).ok());
    assert_eq!(publishes_all, published.is_some_and(|published| published == trusted));
    if let (Ok(leaf), Some(cert), Some(key)) = (leaf, pair.tls_crt, pair.tls_key) {
        let served = check(cert, key, bundle.as_bytes(), &names, now, SignedDuration::ZERO);
        assert_eq!(served.as_ref(), Ok(&leaf), "what is served verifies under what is published");
        for published_for in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
            let observed = Observed { published_for, unchanged_for: published_for.unwrap_or_default() };
            let next = step(&authorities, cert, &leaf, &RotationTiming::default(), observed, now);
            let early = published_for != Some(Duration::MAX);
            assert!(!(early && next == Step::Promote), "a CA issues before it is seen everywhere");
            assert!(!(early && next == Step::Forget), "a CA is forgotten while certificates under it are served");
        }
    }
    let before = authorities.phase();
    authorities.promote();
    let after = if before == Phase::Publishing { Phase::Draining } else { before };
    assert_eq!(authorities.phase(), after);
    assert_eq!(authorities.bundle(), bundle, "what is published is the same before and after the next CA issues");
}
