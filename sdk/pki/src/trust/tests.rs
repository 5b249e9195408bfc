//! Chains under bundles, and the reasons for refusals.

use jiff::SignedDuration;
use rcgen::{BasicConstraints, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::*;

const NOW: i64 = 1_800_000_000;
const DAY: SignedDuration = SignedDuration::from_hours(24);

type Change = fn(&mut rcgen::CertificateParams);

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

fn params(name: &str, from: SignedDuration, to: SignedDuration) -> rcgen::CertificateParams {
    let mut params = rcgen::CertificateParams::new(["webhook.a.svc".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let at = |off: SignedDuration| {
        std::time::UNIX_EPOCH + std::time::Duration::from_secs((NOW + off.as_secs()).unsigned_abs())
    };
    params.not_before = at(from).into();
    params.not_after = at(to).into();
    params
}

fn authority(name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Authority {
    let mut params = params(name, -DAY, DAY * 30);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority { pem, issuer: Issuer::new(params, key) }
}

impl Authority {
    fn leaf(&self) -> String {
        let key = KeyPair::generate().unwrap();
        params("leaf", -DAY, DAY * 9).signed_by(&key, &self.issuer).unwrap().pem()
    }

    fn intermediate(&self, name: &str) -> Self {
        self.intermediate_with(name, KeyPair::generate().unwrap(), |_| {})
    }

    fn intermediate_with(&self, name: &str, key: KeyPair, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Self {
        let mut params = params(name, -DAY, DAY * 20);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }
}

fn check(chain: &str, bundle: &str) -> Result<String, String> {
    let now = Timestamp::from_second(NOW).unwrap();
    check_trust(chain.as_bytes(), bundle.as_bytes(), now)
        .map(|ca| ca.common_name)
        .map_err(|problem| problem.to_string())
}

#[test]
fn a_chain_is_trusted_by_any_authority_of_the_bundle() {
    let (ca, other) = (authority("ca", |_| {}), authority("other", |_| {}));
    let (leaf, below) = (ca.leaf(), ca.intermediate("below"));
    let long = below.leaf() + &below.pem;
    let same_name = authority("ca", |_| {});
    for (chain, bundle, by) in [
        (&leaf, ca.pem.clone(), "ca"),
        (&leaf, other.pem.clone() + &ca.pem, "ca"),
        (&leaf, same_name.pem.clone() + &ca.pem, "ca"),
        (&long, ca.pem.clone(), "ca"),
        (&long, below.pem.clone(), "below"),
        (&leaf, leaf.clone(), "leaf"),
    ] {
        assert_eq!(check(chain, &bundle).as_deref(), Ok(by), "{bundle}");
    }
}

#[test]
fn a_refusal_says_what_stands_in_the_way() {
    let ca = authority("ca", |_| {});
    let cases: Vec<(String, String, &str)> = vec![
        (ca.leaf(), " \n".to_owned(), "the CA bundle is empty"),
        (ca.leaf(), "not PEM".to_owned(), "the CA bundle cannot be read: "),
        (ca.leaf(), ca.pem[..ca.pem.len() - 20].to_owned(), "the CA bundle cannot be read: "),
        (
            ca.leaf(),
            authority("b", |_| {}).pem,
            "does not hold the issuer of the certificate, 'CN=ca' (it holds: 'CN=b')",
        ),
        (ca.leaf(), authority("ca", |_| {}).pem, "holds a 'CN=ca' with another key"),
        (
            ca.intermediate("between").leaf(),
            ca.pem.clone(),
            "does not hold the issuer of the certificate, 'CN=between'",
        ),
    ];
    let made: [(Change, &str); 5] = [
        (|ca| ca.is_ca = IsCa::ExplicitNoCa, "'CN=ca' in the CA bundle is not a CA"),
        (|ca| ca.key_usages = vec![KeyUsagePurpose::CrlSign], "may not sign certificates"),
        (|ca| ca.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth], "may not sign for servers"),
        (|ca| ca.not_after = params("", -DAY * 9, -DAY).not_after, "the CA 'CN=ca' expired at 2027-01-14"),
        (|ca| ca.not_before = params("", DAY, DAY * 9).not_before, "the CA 'CN=ca' is not valid before 2027-01-16"),
    ];
    let made = made.into_iter().map(|(change, wanted)| {
        let ca = authority("ca", change);
        (ca.leaf(), ca.pem, wanted)
    });
    for (chain, bundle, wanted) in cases.into_iter().chain(made) {
        let said = check(&chain, &bundle).unwrap_err();
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

// A public CA that changes its root has the same intermediate signed by the old and by the new one.
#[test]
fn every_way_over_the_intermediates_is_tried() {
    let (old, new) = (authority("old", |_| {}), authority("new", |_| {}));
    let key = KeyPair::generate().unwrap();
    let again = KeyPair::from_pem(&key.serialize_pem()).unwrap();
    let (by_old, by_new) =
        (old.intermediate_with("shared", key, |_| {}), new.intermediate_with("shared", again, |_| {}));
    for chain in [[&by_old.pem, &by_new.pem], [&by_new.pem, &by_old.pem]] {
        let chain = by_old.leaf() + chain[0] + chain[1];
        for (bundle, by) in [(&old.pem, "old"), (&new.pem, "new")] {
            assert_eq!(check(&chain, bundle).as_deref(), Ok(by));
        }
    }
}

#[test]
fn intermediates_must_be_valid_cas_for_servers() {
    let ca = authority("ca", |_| {});
    let changes: [Change; 4] = [
        |between| between.not_after = params("", -DAY * 9, -DAY).not_after,
        |between| between.is_ca = IsCa::ExplicitNoCa,
        |between| between.key_usages = vec![KeyUsagePurpose::CrlSign],
        |between| between.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
    ];
    for change in changes {
        let between = ca.intermediate_with("between", KeyPair::generate().unwrap(), change);
        let said = check(&(between.leaf() + &between.pem), &ca.pem).unwrap_err();
        assert!(said.contains("does not hold the issuer of the certificate, 'CN=between'"), "{said}");
    }
    for (most, accepted) in [(0, false), (1, true)] {
        let ca = authority("ca", |ca| ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(most)));
        let between = ca.intermediate("between");
        let said = check(&(between.leaf() + &between.pem), &ca.pem);
        assert_eq!(said.is_ok(), accepted, "{said:?}");
        assert!(accepted || said.unwrap_err().contains("does not allow 1 intermediate certificates below it"));
        assert!(check(&ca.leaf(), &ca.pem).is_ok());
    }
}

#[test]
fn the_closest_of_several_problems_is_reported() {
    let (ca, twin) = (authority("ca", |_| {}), authority("ca", |_| {}));
    let expired = |issuer: &Authority| {
        let mut params = params("ca", -DAY * 9, -DAY);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(issuer.issuer.key()).unwrap().pem()
    };
    for bundle in [twin.pem.clone() + &expired(&ca), expired(&ca) + &twin.pem] {
        let said = check(&ca.leaf(), &bundle).unwrap_err();
        assert!(said.contains("the CA 'CN=ca' expired"), "{said}");
    }
    let between = ca.intermediate("between");
    let said = check(&(between.leaf() + &between.pem), &authority("b", |_| {}).pem).unwrap_err();
    assert!(said.contains("does not hold the issuer of the certificate, 'CN=ca'"), "{said}");
}

#[test]
fn a_refusal_names_every_authority_of_the_bundle() {
    let bundle = authority("b", |_| {}).pem + &authority("c", |_| {}).pem;
    let said = check(&authority("ca", |_| {}).leaf(), &bundle).unwrap_err();
    assert!(said.contains("(it holds: 'CN=b', 'CN=c')"), "{said}");
    let any = authority("any", |ca| ca.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any]);
    assert_eq!(check(&any.leaf(), &any.pem).as_deref(), Ok("any"));
}

// Each is another signature to check, and the author of the Secret decides how many there are.
#[test]
fn of_a_chain_without_end_a_few_intermediates_are_looked_at() {
    let ca = authority("ca", |_| {});
    let between = ca.intermediate("between");
    for (before, accepted) in [(MAX_INTERMEDIATES - 1, true), (MAX_INTERMEDIATES, false)] {
        let chain = between.leaf() + &ca.pem.repeat(before) + &between.pem;
        assert_eq!(check(&chain, &ca.pem).is_ok(), accepted, "{before}");
    }
}

#[test]
fn a_certificate_is_trusted_to_its_authoritys_last_second() {
    let ca = authority("ca", |_| {});
    let leaf = ca.leaf();
    let at = |off: SignedDuration| {
        check_trust(leaf.as_bytes(), ca.pem.as_bytes(), Timestamp::from_second(NOW).unwrap() + off).is_ok()
    };
    let second = SignedDuration::from_secs(1);
    assert_eq!([at(-DAY - second), at(-DAY), at(DAY * 30), at(DAY * 30 + second)], [false, true, true, false]);
}
