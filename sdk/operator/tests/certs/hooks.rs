//! Certificates that commands make and publish at each upgrade.

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{Ca, Certificate, CertificateParams, Usage, bundle_fingerprints, check_trust};

use crate::Installation;

const DAY: SignedDuration = SignedDuration::from_hours(24);
const ENSURE: [&str; 3] = ["ensure", "--certificates", "hooks"];
const PUBLISH: [&str; 3] = ["publish", "--certificates", "hooks"];

/// How many days are left of what is stored under this key.
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
async fn certificates_of_hooks_last_for_years_and_are_kept_until_their_last_month() {
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
async fn a_certificate_under_an_authority_that_ends_is_replaced_with_it_and_both_are_trusted() {
    let place = Installation::new().await;
    let now = Timestamp::now();
    let old = Ca::generate("old", now - DAY, now + DAY * 20).unwrap();
    place.says(&ENSURE).await;
    stores(&place, &old, 20).await;
    let name = format!("{}-webhook-tls-ca", place.name);
    let values = serde_json::json!({ "stringData": { "ca.crt": old.cert_pem(), "ca.key": old.key_pem() } });
    place.secrets().patch(&name, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(values)).await.unwrap();

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
async fn what_was_made_is_published_and_the_stored_authority_is_not_asked_for() {
    let place = Installation::new().await;
    place.says(&ENSURE).await;
    place.install(&["webhooks", "--certificates", "hooks"]).await;
    assert_eq!(place.bundles().await, [None]);
    // The account of the hook may not read it.
    let name = format!("{}-webhook-tls-ca", place.name);
    place.secrets().delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    let said = place.says(&["inject", "--certificates", "hooks"]).await;
    assert!(said.contains(&format!("published: ValidatingWebhookConfiguration {}-validating", place.name)), "{said}");
    let ca = String::from_utf8(place.secret("").await["ca.crt"].0.clone()).unwrap();
    assert_eq!(place.bundles().await, [Some(ca)]);
    let shown = place.shown(&["--certificates", "hooks"]).await;
    assert!(shown.get("problems").is_none() && shown["published"][0].get("problem").is_none(), "{shown:#}");
}
