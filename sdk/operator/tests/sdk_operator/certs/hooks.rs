//! Certificates that commands make and publish at each upgrade.

use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams};
use portcullis_pki::{Ca, Certificate, CertificateParams, Usage, bundle_fingerprints, check_trust};

use super::Installation;

const DAY: SignedDuration = SignedDuration::from_hours(24);
const ENSURE: [&str; 3] = ["ensure", "--certificates", "hooks"];
const PUBLISH: [&str; 3] = ["publish", "--certificates", "hooks"];

/// Days until the certificate under this key expires.
async fn days_left(place: &Installation, suffix: &str, key: &str) -> i64 {
    let certificate = Certificate::from_pem(&place.secret(suffix).await[key].0).unwrap();
    certificate.not_after.duration_since(Timestamp::now()).as_hours() / 24
}

/// Stores a CA that ends in so many days, with a leaf under it.
async fn stores(place: &Installation, ca: &Ca, leaf_ends: i32) {
    let (now, service) = (Timestamp::now(), format!("{0}-webhook.{0}", place.name));
    let pair = ca
        .issue(&CertificateParams {
            common_name: "webhook",
            organizations: &[],
            dns_names: &[format!("{service}.svc"), format!("{service}.svc.cluster.local"), service],
            ip_addresses: &[],
            not_before: now - DAY,
            not_after: now + DAY * leaf_ends,
            usage: Usage::Server,
        })
        .unwrap();
    place.fill(&[("tls.crt", &pair.cert_pem), ("tls.key", &pair.key_pem), ("ca.crt", ca.cert_pem())]).await;
}

async fn stored_ca(place: &Installation) -> Ca {
    let ca = place.secret("-ca").await;
    let text = |key: &str| String::from_utf8(ca[key].0.clone()).unwrap();
    Ca::from_pem(&text("ca.crt"), &text("ca.key")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_certificates_last_years_and_are_kept_to_the_last_month() {
    let place = Installation::new().await;
    let said = place.fails(&PUBLISH).await;
    assert!(said.contains("'certs ensure --certificates hooks' makes or repairs it"), "{said}");

    place.says(&ENSURE).await;
    let made = (place.secret("").await, place.secret("-ca").await);
    assert_eq!(days_left(&place, "", "tls.crt").await, 3649);
    assert!(days_left(&place, "-ca", "ca.crt").await > 2 * 3650, "it outlasts the next certificate as well");
    place.says(&ENSURE).await;
    assert_eq!((place.secret("").await, place.secret("-ca").await), made);

    // By the other name of the command, and for another time.
    let ca = stored_ca(&place).await;
    stores(&place, &ca, 29).await;
    place.says(&["generate", "--certificates", "hooks", "--certificate-validity", "400d"]).await;
    assert_eq!(days_left(&place, "", "tls.crt").await, 399);
    assert_eq!(place.secret("").await["ca.crt"].0, ca.cert_pem().as_bytes(), "nothing new has to be trusted");

    let said = place.fails(&["rotate", "--certificates", "hooks"]).await;
    assert!(said.contains("these certificates are made at each upgrade"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expiring_ca_and_its_leaf_are_replaced_and_both_trusted() {
    let place = Installation::new().await;
    let now = Timestamp::now();
    let old = Ca::generate("old", now - DAY, now + DAY * 20).unwrap();
    place.says(&ENSURE).await;
    stores(&place, &old, 20).await;
    let name = format!("{}-webhook-tls-ca", place.name);
    let values = serde_json::json!({ "stringData": { "ca.crt": old.cert_pem(), "ca.key": old.key_pem() } });
    place.secrets().patch(&name, &PatchParams::default(), &Patch::Merge(values)).await.unwrap();

    let served = place.secret("").await["tls.crt"].0.clone();
    place.says(&ENSURE).await;
    let pair = place.secret("").await;
    let (chain, bundle) = (&pair["tls.crt"].0, &pair["ca.crt"].0);
    assert_eq!(days_left(&place, "", "tls.crt").await, 3649);
    assert_eq!(bundle_fingerprints(bundle).unwrap().len(), 2);
    for served in [chain, &served] {
        check_trust(served, bundle, Timestamp::now()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_ca_stays_trusted_until_it_is_removed() {
    let place = Installation::new().await;
    place.says(&ENSURE).await;
    place.install(&["webhooks", "--certificates", "hooks"]).await;
    place.says(&PUBLISH).await;
    for suffix in ["", "-ca"] {
        place.secrets().delete(&format!("{}-webhook-tls{suffix}", place.name), &DeleteParams::default()).await.unwrap();
    }
    let upgraded = async || {
        place.says(&ENSURE).await;
        place.says(&PUBLISH).await;
        bundle_fingerprints(place.bundles().await.remove(0).unwrap().as_bytes()).unwrap().len()
    };
    assert_eq!(upgraded().await, 2);

    let said = place.fails(&["rotate", "--certificates", "hooks"]).await;
    let patch = said.split('\'').find(|part| part.starts_with('{')).unwrap_or_else(|| panic!("no patch: {said}"));
    let patch: serde_json::Value = serde_json::from_str(patch).unwrap();
    let name = format!("{}-webhook-tls-ca", place.name);
    place.secrets().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(upgraded().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_publish_the_new_ca_without_reading_the_ca_secret() {
    let place = Installation::new().await;
    place.says(&ENSURE).await;
    place.install(&["webhooks", "--certificates", "hooks"]).await;
    assert_eq!(place.bundles().await, [None]);
    // The account of the hook may not read it.
    let name = format!("{}-webhook-tls-ca", place.name);
    place.secrets().delete(&name, &DeleteParams::default()).await.unwrap();
    let said = place.says(&["inject", "--certificates", "hooks"]).await;
    assert!(said.contains(&format!("published: ValidatingWebhookConfiguration {}-validating", place.name)), "{said}");
    let ca = String::from_utf8(place.secret("").await["ca.crt"].0.clone()).unwrap();
    assert_eq!(place.bundles().await, [Some(ca)]);
    let shown = place.shown(&["--certificates", "hooks"]).await;
    assert!(shown.get("problems").is_none() && shown["published"][0].get("problem").is_none(), "{shown:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trusted_cas_stay_in_the_bundle_until_publish() {
    let place = Installation::new().await;
    let now = Timestamp::now();
    let other = Ca::generate("other", now - DAY, now + DAY * 20).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), other.cert_pem()).unwrap();
    let bundle = file.path().display().to_string();
    place.install(&["webhooks", "--certificates", "external", "--ca-bundle", &bundle]).await;
    assert_eq!(place.bundles().await, [Some(other.cert_pem().to_owned())]);

    let said = place.says(&ENSURE).await;
    let object = format!("ValidatingWebhookConfiguration {}-validating", place.name);
    assert!(said.contains(&format!("added the CA to what is trusted: {object}")), "{said}");
    let pair = place.secret("").await;
    let both = bundle_fingerprints([other.cert_pem().as_bytes(), &pair["ca.crt"].0].concat().as_slice()).unwrap();
    let trusted = async || bundle_fingerprints(place.bundles().await.remove(0).unwrap().as_bytes()).unwrap();
    assert_eq!(trusted().await, both);

    // The same owner applies its manifest without a bundle.
    place.install(&["webhooks", "--certificates", "hooks"]).await;
    assert_eq!(trusted().await, both);
    let said = place.says(&ENSURE).await;
    assert!(!said.contains("added"), "{said}");
    place.says(&PUBLISH).await;
    assert_eq!(place.bundles().await, [Some(String::from_utf8(pair["ca.crt"].0.clone()).unwrap())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_cert_manager_fills_is_left_to_it() {
    let place = Installation::new().await;
    let (now, name) = (Timestamp::now(), format!("{}-webhook-tls", place.name));
    stores(&place, &Ca::generate("of cert-manager", now - DAY, now + DAY * 90).unwrap(), 60).await;
    let says_whose =
        serde_json::json!({ "metadata": { "annotations": { "cert-manager.io/certificate-name": "webhook" } } });
    place.secrets().patch(&name, &PatchParams::default(), &Patch::Merge(&says_whose)).await.unwrap();
    let filled = place.secret("").await;
    let said = place.fails(&ENSURE).await;
    assert!(said.contains(&format!("Secret {}/{name} is filled by cert-manager", place.name)), "{said}");
    assert_eq!(place.secret("").await, filled);

    // An annotation that is left over says nothing about what is made since.
    place.secrets().delete(&name, &DeleteParams::default()).await.unwrap();
    place.says(&ENSURE).await;
    place.secrets().patch(&name, &PatchParams::default(), &Patch::Merge(&says_whose)).await.unwrap();
    place.says(&ENSURE).await;
}
