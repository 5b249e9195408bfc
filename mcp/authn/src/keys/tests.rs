//! Every algorithm with real keys, and what does not fit.

use portcullis_identity::{Signer, encode};
use serde_json::json;

use super::*;

/// A provider's private keys, of each kind one. The `kid` of each is its kind.
struct Issuer([Signer; 5]);

impl Issuer {
    fn new() -> Self {
        Self([Signer::rsa("rsa"), Signer::ed("ed"), Signer::ec("P-256"), Signer::p384("P-384"), Signer::p521("P-521")])
    }

    fn jwks(&self) -> Vec<Value> {
        self.0.iter().map(Signer::jwk).collect()
    }

    fn sign(&self, algorithm: &str, header: &Value) -> String {
        let signer = self.0.iter().find(|signer| signer.jwk()["kid"] == kid(algorithm)).unwrap();
        signer.sign_with(algorithm, header, &json!({"sub": "alice"}))
    }
}

fn set(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({"keys": keys}).to_string().into()).unwrap()
}

fn kid(algorithm: &str) -> &'static str {
    match algorithm {
        "ES256" => "P-256",
        "ES384" => "P-384",
        "ES512" => "P-521",
        "EdDSA" | "Ed25519" => "ed",
        _ => "rsa",
    }
}

fn verify(set: &KeySet, token: &str) -> Result<(), Unverified> {
    set.verify(&Jws::parse(token).unwrap())
}

fn changed(key: &Value, member: &str, value: &str) -> Value {
    let mut key = key.clone();
    key[member] = json!(value);
    key
}

#[test]
fn every_asymmetric_algorithm_is_taken_with_its_own_key_alone() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let (own, others) = (set(&issuer.jwks()), set(&other.jwks()));
    for algorithm in ALGORITHMS {
        let token = issuer.sign(algorithm, &json!({"alg": algorithm, "kid": kid(algorithm)}));
        assert_eq!(verify(&own, &token), Ok(()), "{algorithm}");
        assert_eq!(verify(&others, &token), Err(Unverified::Signature), "{algorithm} of another");
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let claims = signed.split_once('.').unwrap().1;
        let tampered = token.replace(claims, &encode(br#"{"sub":"bob"}"#));
        assert_eq!(verify(&own, &tampered), Err(Unverified::Signature), "{algorithm} tampered with");
        assert_eq!(verify(&own, &format!("{signed}.")), Err(Unverified::Signature), "{algorithm} without signature");
        let half = &signature[..signature.len() / 8 * 4];
        assert!(verify(&own, &format!("{signed}.{half}")).is_err(), "{algorithm} cut off");
    }
}

#[test]
fn what_a_header_says_does_not_choose_another_use_of_a_key() {
    let issuer = Issuer::new();
    let jwks = issuer.jwks();
    let own = set(&jwks);
    let unfit = |kid: &str, algorithm: &str| Unverified::Unfit { kid: kid.into(), algorithm: algorithm.into() };
    let (long, shown) = ("ä".repeat(MAX_SHOWN + 1), "ä".repeat(MAX_SHOWN));
    for (header, error) in [
        (json!({"alg": "none", "kid": "rsa"}), Unverified::Algorithm("none".into())),
        (json!({"alg": "None", "kid": "rsa"}), Unverified::Algorithm("None".into())),
        (json!({"alg": "", "kid": "rsa"}), Unverified::Algorithm(String::new())),
        (json!({"alg": "HS256", "kid": "rsa"}), Unverified::Algorithm("HS256".into())),
        (json!({"alg": "rs256", "kid": "rsa"}), Unverified::Algorithm("rs256".into())),
        (json!({"alg": "RS256", "kid": "P-256"}), unfit("P-256", "RS256")),
        (json!({"alg": "ES256", "kid": "P-384"}), unfit("P-384", "ES256")),
        (json!({"alg": "EdDSA", "kid": "rsa"}), unfit("rsa", "EdDSA")),
        (json!({"alg": "PS256", "kid": "rsa"}), Unverified::Signature),
        (json!({"alg": "RS512", "kid": "rsa"}), Unverified::Signature),
        (json!({"alg": "RS256", "kid": "RSA"}), Unverified::UnknownKid("RSA".into())),
        (json!({"alg": "RS256", "kid": "rsa", "typ": "logout+jwt"}), Unverified::Type("logout+jwt".into())),
        (json!({"alg": "RS256", "kid": "rsa", "typ": "dpop+jwt"}), Unverified::Type("dpop+jwt".into())),
        (json!({"alg": "RS256", "kid": "rsa", "typ": "secevent+jwt"}), Unverified::Type("secevent+jwt".into())),
        (json!({"alg": "RS256", "kid": "rsa", "typ": ""}), Unverified::Type(String::new())),
        (json!({"alg": long, "kid": "rsa"}), Unverified::Algorithm(shown.clone())),
        (json!({"alg": "RS256", "kid": long}), Unverified::UnknownKid(shown.clone())),
        (json!({"alg": "RS256", "kid": "rsa", "typ": long}), Unverified::Type(shown.clone())),
        (json!({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": false}), Unverified::Critical),
    ] {
        let token = issuer.sign("RS256", &header);
        assert_eq!(verify(&own, &token), Err(error), "{header}");
    }
    for typ in ["JWT", "jwt", "application/jwt", "at+jwt", "AT+JWT", "application/at+jwt"] {
        let token = issuer.sign("RS256", &json!({"alg": "RS256", "kid": "rsa", "typ": typ}));
        assert_eq!(verify(&own, &token), Ok(()), "{typ}");
    }
    let token = issuer.sign("PS256", &json!({"alg": "PS256", "kid": "rsa"}));
    for (change, result) in [
        (json!({"alg": "PS256", "use": "sig", "key_ops": ["sign", "verify"]}), Ok(())),
        (json!({"alg": "RS256"}), Err(unfit("rsa", "PS256"))),
        (json!({"alg": "HS256"}), Err(unfit("rsa", "PS256"))),
        (json!({"use": "enc"}), Err(Unverified::UnknownKid("rsa".into()))),
        (json!({"key_ops": ["encrypt"]}), Err(Unverified::UnknownKid("rsa".into()))),
        (json!({"kty": "oct", "k": "AAAA"}), Err(Unverified::UnknownKid("rsa".into()))),
    ] {
        let mut key = jwks[0].as_object().unwrap().clone();
        key.extend(change.as_object().unwrap().clone());
        assert_eq!(verify(&set(&[Value::Object(key)]), &token), result, "{change}");
    }
    let ed = issuer.sign("EdDSA", &json!({"alg": "EdDSA", "kid": "ed"}));
    let mut key = jwks[1].as_object().unwrap().clone();
    key.insert("alg".into(), json!("Ed25519"));
    assert_eq!(verify(&set(&[Value::Object(key)]), &ed), Ok(()), "both names are of one algorithm");
}

#[test]
fn a_token_that_names_no_key_is_not_refused_where_one_key_fits() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let nameless = |mut key: Value| {
        key.as_object_mut().unwrap().remove("kid");
        key
    };
    let own = issuer.jwks();
    let second = nameless(other.jwks().swap_remove(0));
    let encrypts = changed(&second, "use", "enc");
    let for_another = changed(&second, "alg", "PS256");
    for (keys, result) in [
        (own.clone(), Ok(())),
        (own.iter().cloned().map(nameless).collect(), Ok(())),
        (vec![own[0].clone(), encrypts, for_another], Ok(())),
        (vec![own[0].clone(), second.clone()], Err(Unverified::NoKid(2))),
        (vec![own[1].clone()], Err(Unverified::NoKid(0))),
        (vec![second.clone()], Err(Unverified::Signature)),
    ] {
        for header in [json!({"alg": "RS256"}), json!({"alg": "RS256", "kid": ""})] {
            assert_eq!(verify(&set(&keys), &issuer.sign("RS256", &header)), result, "{header}");
        }
    }
    let named = issuer.sign("RS256", &json!({"alg": "RS256", "kid": "rsa"}));
    assert_eq!(verify(&set(&[nameless(own[0].clone())]), &named), Err(Unverified::UnknownKid("rsa".into())));
}

#[test]
fn of_two_keys_with_one_kid_the_one_that_fits_counts() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let mut keys = [other.jwks().swap_remove(0), issuer.jwks().swap_remove(0), issuer.jwks().swap_remove(1)];
    keys[2]["kid"] = json!("rsa");
    let token = issuer.sign("RS256", &json!({"alg": "RS256", "kid": "rsa"}));
    assert_eq!(verify(&set(&keys), &token), Ok(()));
}

#[test]
fn a_set_is_read_as_far_as_it_can_be_used() {
    let good = Issuer::new().jwks().swap_remove(1);
    let bad = [json!(1), json!({"kty": "RSA", "kid": "x"}), json!({"kty": "new", "kid": "x"}), json!({"kid": "x"})];
    assert_eq!(set(&[&bad[..], std::slice::from_ref(&good)].concat()).len(), 1);
    for document in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":null}"#] {
        assert!(KeySet::parse(document.as_bytes().into()).is_err(), "{document}");
    }
    let many = json!({"keys": vec![good; MAX_KEYS + 1]}).to_string();
    assert!(KeySet::parse(many.into()).unwrap_err().contains("more than 100"));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_readers_panic(text in ".{0,200}", parts in proptest::array::uniform3("[A-Za-z0-9_=-]{0,40}"), json in "[\\[\\]{}\":,a-z0-9]{0,80}") {
        let set = set(&[json!({"kid": "a", "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"})]);
        let header = json!({"alg": "ES512", "kid": "a"}).to_string();
        let tokens = [text.clone(), parts.join("."), [encode(json.as_bytes()), encode(text.as_bytes()), parts[2].clone()].join("."),
            [encode(header.as_bytes()), encode(b"{}"), parts[0].clone()].join(".")];
        for token in tokens {
            if let Some(jws) = Jws::parse(&token) {
                proptest::prop_assert!(set.verify(&jws).is_err());
            }
        }
        let _ = KeySet::parse(json.into_bytes().into());
        let _ = KeySet::parse(text.into_bytes().into());
    }
}
