//! Provided certificates: checked, waited for, never written.

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{Ca, CertificateParams, Usage};

use super::Installation;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn external_certificates_are_checked_and_awaited() {
    let place = Installation::new().await;
    let external = |command| [command, "--certificates", "external"];
    let said = place.fails(&external("ensure")).await;
    let make =
        format!("make it: 'kubectl -n {0} create secret generic {0}-webhook-tls --type=kubernetes.io/tls", place.name);
    assert!(said.contains(": there is none; ") && said.contains(&make), "{said}");

    let (now, year) = (Timestamp::now(), SignedDuration::from_hours(24 * 365));
    let ca = Ca::generate("owner", now - year, now + year).unwrap();
    let pair = ca
        .issue(&CertificateParams {
            common_name: "webhook",
            organizations: &[],
            dns_names: &[format!("{0}-webhook.{0}.svc", place.name)],
            ip_addresses: &[],
            not_before: now - year,
            not_after: now + year,
            usage: Usage::Server,
        })
        .unwrap();
    place.fill(&[("tls.crt", &pair.cert_pem), ("tls.key", &pair.key_pem), ("ca.crt", ca.cert_pem())]).await;
    place.says(&external("ensure")).await;

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let stranger = Ca::generate("stranger", now - year, now + year).unwrap();
    let (wrong, right) = (file("wrong.pem", stranger.cert_pem()), file("right.pem", ca.cert_pem()));
    place.install(&["webhooks", "--certificates", "external", "--ca-bundle", &wrong]).await;
    let said = place.fails(&[&external("publish")[..], &["--timeout", "3"]].concat()).await;
    for part in [
        "username.entities.demo.example: the CA bundle does not hold the issuer of the certificate, 'CN=owner' (it holds: \
         'CN=stranger')",
        "apply what 'generate webhooks --ca-bundle FILE'",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(place.bundles().await, [Some(stranger.cert_pem().to_owned())], "it is not ours to write");
    let shown = place.shown(&["--certificates", "external"]).await;
    assert!(shown["published"][0]["problem"].as_str().unwrap().contains("CN=stranger"), "{shown:#}");

    place.install(&["webhooks", "--certificates", "external", "--ca-bundle", &right]).await;
    let said = place.says(&external("publish")).await;
    assert!(said.contains(&format!("published: ValidatingWebhookConfiguration {}-validating", place.name)), "{said}");
    let shown = place.shown(&["--certificates", "external"]).await;
    assert!(shown["published"][0].get("problem").is_none(), "{shown:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_makes_the_certificates_rotates_them() {
    let place = Installation::new().await;
    for (mode, said) in [
        ("cert-manager", "cert-manager makes these certificates: 'cmctl renew -n "),
        (
            "external",
            "these certificates are your own: apply 'generate webhooks' and 'generate crds' with an --ca-bundle FILE",
        ),
    ] {
        let error = place.fails(&["rotate", "--certificates", mode]).await;
        assert!(error.contains(said), "{error}");
    }
}
