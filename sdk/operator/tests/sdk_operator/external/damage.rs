//! Damage to the Secret, in both of the modes in which another program or a user fills it.

use base64::Engine as _;
use futures::future::{BoxFuture, join_all};
use portcullis::certificates::ProvidedBy;
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use portcullis_testing::wait_until;

use super::fixture::{DAY, Place, authority, ca, leaf};
use super::load::Load;
use crate::PATIENCE;

/// Done to a place whose Secret holds this pair under this CA.
type Damage = for<'a> fn(&'a Place, &'a Pair, &'a Ca) -> BoxFuture<'a, ()>;

struct Case {
    what: &'static str,
    damage: Damage,
    /// The problem in the log, with the fix for a user and the one for cert-manager.
    said: &'static str,
    user: &'static str,
    cert_manager: &'static str,
}

const fn case(
    what: &'static str,
    damage: Damage,
    said: &'static str,
    user: &'static str,
    cert_manager: &'static str,
) -> Case {
    Case { what, damage, said, user, cert_manager }
}

fn client_pair(ca: &Ca, place: &Place) -> Pair {
    ca.issue(&CertificateParams {
        common_name: "webhook",
        organizations: &[],
        dns_names: &[place.server_name()],
        ip_addresses: &[],
        not_before: ca.certificate().not_before,
        not_after: ca.certificate().not_after,
        usage: Usage::Client,
    })
    .unwrap()
}

const AGAIN: &str = "kubectl -n @ns create secret generic pair --type=kubernetes.io/tls --from-file=tls.crt \
                     --from-file=tls.key --from-file=ca.crt --dry-run=client -o yaml | kubectl apply -f -";
const ISSUE_AGAIN: &str = "'kubectl -n @ns delete secret pair' has cert-manager issue it again";

fn cases() -> Vec<Case> {
    vec![
        case(
            "an empty certificate",
            |p, _, _| Box::pin(p.put(&[("tls.crt", "")])),
            "key tls.crt is empty",
            "put all three files in: 'kubectl",
            ISSUE_AGAIN,
        ),
        case(
            "no CA",
            |p, pair, _| Box::pin(async { p.put(&[("tls.crt", &pair.cert_pem), ("tls.key", &pair.key_pem)]).await }),
            "key ca.crt is missing",
            AGAIN,
            "the issuer of Certificate @ns/pair gives no CA",
        ),
        case(
            "a truncated certificate",
            |p, pair, ca| {
                Box::pin(async {
                    let cut = &pair.cert_pem[..pair.cert_pem.len() / 2];
                    p.put(&[("tls.crt", cut), ("tls.key", &pair.key_pem), ("ca.crt", ca.cert_pem())]).await;
                })
            },
            "tls.crt: the certificate cannot be read",
            "put in a certificate that can be served: 'kubectl",
            ISSUE_AGAIN,
        ),
        // dotnet-operator-sdk#1064
        case(
            "a certificate that is encoded twice",
            |p, pair, ca| {
                Box::pin(async {
                    let twice = base64::engine::general_purpose::STANDARD.encode(&pair.cert_pem);
                    p.put(&[("tls.crt", &twice), ("tls.key", &pair.key_pem), ("ca.crt", ca.cert_pem())]).await;
                })
            },
            "tls.crt: the certificate cannot be read",
            "put in a certificate that can be served: 'kubectl",
            ISSUE_AGAIN,
        ),
        case(
            "a truncated CA",
            |p, pair, ca| {
                Box::pin(async {
                    let cut = &ca.cert_pem()[..ca.cert_pem().len() - 30];
                    p.put_pair(pair, cut).await;
                })
            },
            "ca.crt: the CA bundle cannot be read",
            "ca.crt must hold the CA, valid now, that has signed tls.crt",
            ISSUE_AGAIN,
        ),
        case(
            "a foreign CA",
            |p, pair, _| Box::pin(async { p.put_pair(pair, ca("stranger").cert_pem()).await }),
            "ca.crt does not fit tls.crt: the CA bundle does not hold the issuer of the certificate, 'CN=owner' (it holds: \
             'CN=stranger')",
            "ca.crt must hold the CA, valid now, that has signed tls.crt",
            "see the issuer of Certificate @ns/pair",
        ),
        case(
            "a CA made again under the same name",
            |p, pair, _| Box::pin(async { p.put_pair(pair, ca("owner").cert_pem()).await }),
            "the CA bundle holds a 'CN=owner' with another key than the one that signed the certificate",
            "ca.crt must hold the CA",
            ISSUE_AGAIN,
        ),
        case(
            "a CA that has ended",
            |p, _, _| {
                Box::pin(async {
                    let ended = authority("ended", -DAY * 9, -DAY);
                    p.put_pair(&p.pair(&ended), ended.cert_pem()).await;
                })
            },
            "the CA 'CN=ended' expired at",
            "ca.crt must hold the CA, valid now",
            "see the issuer of Certificate @ns/pair",
        ),
        case(
            "a swapped key",
            |p, pair, ca| {
                Box::pin(async {
                    let other = p.pair(ca).key_pem;
                    p.put(&[("tls.crt", &pair.cert_pem), ("tls.key", &other), ("ca.crt", ca.cert_pem())]).await;
                })
            },
            "tls.key: the private key does not belong to the certificate",
            "put in the certificate and the key that it was issued for: 'kubectl",
            ISSUE_AGAIN,
        ),
        case(
            "an expired certificate",
            |p, _, ca| Box::pin(async { p.put_pair(&leaf(ca, &p.server_name(), -DAY * 2, -DAY), ca.cert_pem()).await }),
            "tls.crt: the certificate expired at",
            "have a new certificate issued, and put it in: 'kubectl",
            "'kubectl -n @ns describe certificate pair' says what keeps cert-manager from renewing it",
        ),
        case(
            "a certificate that is not valid yet",
            |p, _, ca| Box::pin(async { p.put_pair(&leaf(ca, &p.server_name(), DAY, DAY * 9), ca.cert_pem()).await }),
            "tls.crt: the certificate is not valid before",
            "wait until then, compare this node's clock, or put in one that is valid now: 'kubectl",
            "compare the clocks of the nodes too",
        ),
        // dotnet-operator-sdk#1108
        case(
            "a name that is only nearly right",
            |p, _, ca| {
                Box::pin(async {
                    let nearly = format!("{}.cluster.local", p.server_name());
                    p.put_pair(&leaf(ca, &nearly, -DAY, DAY * 90), ca.cert_pem()).await;
                })
            },
            "tls.crt: the certificate does not name 'webhook.@ns.svc' (it names: webhook.@ns.svc.cluster.local)",
            "with the subject alternative name DNS:webhook.@ns.svc (a common name does not count)",
            "add 'webhook.@ns.svc' to spec.dnsNames of Certificate @ns/pair",
        ),
        case(
            "a certificate for clients",
            |p, _, ca| Box::pin(async { p.put_pair(&client_pair(ca, p), ca.cert_pem()).await }),
            "tls.crt: the certificate is not one for servers",
            "have a server's certificate issued (CA:FALSE, extended key usage 'serverAuth')",
            "have 'server auth' in its spec.usages",
        ),
        // controller-runtime#2182: deleted, and then made again.
        case(
            "no Secret",
            |p, _, _| Box::pin(p.delete()),
            "there is none",
            "make it: 'kubectl -n @ns create secret generic pair --type=kubernetes.io/tls",
            "apply what 'generate certificates' prints; 'kubectl -n @ns describe certificate pair' says",
        ),
    ]
}

/// The damage is logged with its fix, callers do not notice it, and when it is repaired the new pair is served.
async fn survives(case: &Case, provided_by: ProvidedBy) {
    let (what, place, ca) = (case.what, Place::new(provided_by).await, ca("owner"));
    let pair = place.pair(&ca);
    place.put_pair(&pair, ca.cert_pem()).await;
    let serving = place.serve().await;
    place.publish(serving.address.port(), ca.cert_pem()).await;
    place.in_force().await;
    let load = Load::start(&place.admin, &place.name);
    load.go_on(8).await;
    let failures = serving.reload_failures();

    (case.damage)(&place, &pair, &ca).await;
    let seen = || async { (serving.reload_failures() > failures).then_some(()) };
    wait_until(&format!("{what} to be seen"), PATIENCE, seen).await;
    let error = place.source().ensure().await.unwrap_err().to_string();
    let cure = if provided_by == ProvidedBy::User { case.user } else { case.cert_manager };
    let head = format!("Secret {}/pair cannot be served: ", place.name);
    for part in [&*head, case.said, cure] {
        let part = part.replace("@ns", &place.name);
        assert!(error.contains(&part), "{what} ({provided_by:?}): '{part}' is not in: {error}");
    }
    assert!(place.accepts(&serving, ca.cert_pem()).await, "{what}: the previous pair is not served any more");
    load.go_on(8).await;

    // Put right with another pair, which only then is served.
    let wide = leaf(&ca, &format!("*.{}.svc", place.name), -DAY, DAY * 80);
    place.put_pair(&wide, ca.cert_pem()).await;
    let ends = portcullis_pki::Certificate::from_pem(wide.cert_pem.as_bytes()).unwrap().not_after.as_second();
    let metric = "portcullis_certificate_not_after_seconds{certificate=\"leaf\"}";
    let served = || async { (serving.metric(metric) == ends.to_string()).then_some(()) };
    wait_until(&format!("the pair after {what} to be served"), PATIENCE, served).await;
    assert!(place.accepts(&serving, ca.cert_pem()).await, "{what}");
    load.go_on(8).await;
    load.end().await;
}

// D5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_secret_is_refused_while_the_previous_pair_serves() {
    let all = cases();
    for some in all.chunks(7) {
        join_all(some.iter().map(|case| survives(case, ProvidedBy::User))).await;
    }
}

// D4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_secret_of_cert_manager_is_refused_with_the_fix() {
    let all = cases();
    for some in all.chunks(7) {
        join_all(some.iter().map(|case| survives(case, ProvidedBy::CertManager))).await;
    }
}

#[tokio::test]
async fn nothing_is_ever_written_and_no_key_is_shown() {
    let (place, ca) = (Place::new(ProvidedBy::User).await, ca("owner"));
    let pair = place.pair(&ca);
    let mark = place.cluster.audit().mark();
    place.put_pair(&pair, ca.cert_pem()).await;
    let serving = place.serve().await;
    place.publish(serving.address.port(), ca.cert_pem()).await;
    place.in_force().await;
    place.put(&[("tls.key", &pair.key_pem)]).await;
    let seen = || async { (serving.reload_failures() > 0).then_some(()) };
    wait_until("the damage to be seen", PATIENCE, seen).await;
    assert_eq!(place.cluster.audit().writes_by(&place.user.name, mark).await, []);
    let source = place.source();
    let told = format!("{:?} {:?} {:?}", source, source.ensure().await.unwrap_err(), serving.bundle);
    assert!(!told.contains("PRIVATE KEY"), "{told}");
}
