//! What people ask for, and what they may see.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use portcullis_pki::Ca;
use portcullis_testing::{Grant, wait_until};
use serde_json::{Value, json};

use crate::clinic::{Clinic, MUTATING, SECRET, SERVICE, Sort, VALIDATING};
use crate::process::{PATIENCE, output};

const ORDER: Sort = ("doctor.example", "v2", "Order", "orders", true);
const BAD: &str =
    "apiVersion: doctor.example/v2\nkind: Order\nmetadata:\n  name: ten\nspec:\n  beer: Dark\n  glasses: 10\n";
const OLD: &str = "apiVersion: doctor.example/v1\nkind: Order\nmetadata:\n  name: old\nspec:\n  beer: Dark\n";

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let list = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    PolicyRule {
        api_groups: list(&[group]),
        resources: list(resources),
        verbs: list(verbs).unwrap(),
        ..PolicyRule::default()
    }
}

/// D10, least rights: who may not read everything is told what was not looked at. Takes a configuration away.
pub(crate) async fn a_reader_is_told_what_was_not_looked_at(clinic: &Clinic) {
    let read = ["get", "list"];
    let rules = [
        rule("admissionregistration.k8s.io", &["*"], &read),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &read),
        rule("", &["services", "pods", "namespaces"], &read),
    ];
    let user = clinic.cluster.user_with("reader", &[Grant::ClusterRules(&rules)]).await;
    let examined = clinic.examine_as(user.kubeconfig.to_str().unwrap(), &[]).await;
    let needs = |id: &str, words: &str| {
        let of = examined.of(id);
        let told = of.iter().any(|found| found.verdict == "WARN" && found.message.contains(words));
        assert!(told, "{id} '{words}': {of:#?}");
    };
    let own = &clinic.namespace;
    needs("X2", &format!("could not look: needs get secrets shop-webhook-tls in namespace {own}"));
    needs("H1", &format!("could not look: needs list jobs in namespace {own}"));
    needs("L1", "could not look: needs list leases in all namespaces");
    needs("T1", "could not look: needs list orders.doctor.example");
    assert_eq!((examined.code, examined.with("FAIL").len()), (0, 0), "{examined:#?}");
    // What it may read is judged as ever.
    clinic.delete(VALIDATING, "shop-validating").await;
    let examined = clinic.examine_as(user.kubeconfig.to_str().unwrap(), &[]).await;
    assert_eq!(examined.code, 1);
    assert!(examined.of("W1")[0].message.contains("no ValidatingWebhookConfiguration shop-validating"));
}

async fn order(clinic: &Clinic, finalizers: &[&str]) {
    let object = json!({
        "apiVersion": "doctor.example/v2", "kind": "Order",
        "metadata": { "name": "stuck", "finalizers": finalizers }, "spec": { "beer": "Dark" },
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let orders = clinic.api(ORDER);
    // The API server takes up a configuration within a second or two.
    wait_until("the order to be taken", PATIENCE, || async {
        orders.create(&PostParams::default(), &object).await.ok()
    })
    .await;
}

/// T1, T2: with an object that the API server really holds. Takes the Service away.
async fn a_deletion_that_a_webhook_blocks_is_named(clinic: &Clinic) {
    order(clinic, &["doctor.example/drunk"]).await;
    clinic.api(ORDER).delete("stuck", &DeleteParams::default()).await.unwrap();
    let patient = clinic.examine(&[]).await;
    assert_eq!(patient.code, 0, "{patient:#?}");
    assert!(patient.of("W10")[0].message.contains("Order shop-"), "{patient:#?}");

    clinic.delete(SERVICE, "shop-webhook").await;
    let examined = clinic.examine(&["--stuck-after", "0", "--in-namespace", &clinic.namespace]).await;
    let stuck = examined.of("T1");
    assert!(stuck[0].message.contains("stuck: doctor.example/drunk not removed for"), "{stuck:?}");
    assert!(examined.of("T2").is_empty(), "the generated configurations exempt it: {examined:?}");

    // As an earlier version generated it.
    let unexempt = json!([{ "op": "remove", "path": "/webhooks/0/matchConditions" }]);
    clinic.patch(VALIDATING, "shop-validating", unexempt).await;
    let examined = clinic.examine(&["--stuck-after", "0", "--in-namespace", &clinic.namespace]).await;
    let blocked = examined.of("T2");
    let all =
        blocked.iter().find(|found| found.message.contains("shop-validating/sober.orders.doctor.example")).unwrap();
    assert!(
        all.message.contains("blocks finalizer removal of Order") && all.message.contains("/shop-webhook is gone"),
        "{all:?}"
    );
    assert!(all.fix.contains("kubectl patch validatingwebhookconfiguration shop-validating --type=json"), "{all:?}");
    assert!(all.fix.contains("/webhooks/0/failurePolicy"), "{all:?}");
    assert_eq!(examined.code, 1);
}

/// W12. Takes a configuration away.
async fn a_probe_is_refused_by_us_or_says_that_nobody_refuses(clinic: &Clinic) {
    let probe = file(&BAD.replace("metadata:", &format!("metadata:\n  namespace: {}", clinic.team)));
    let path = probe.path().to_str().unwrap();
    let refused = || async {
        let examined = clinic.examine(&["--probe", path]).await;
        let found = examined.findings.iter().find(|found| found.id == "W12").unwrap().clone();
        (found.verdict == "OK").then_some(found)
    };
    let found = wait_until("the probe to be refused", PATIENCE, refused).await;
    assert!(
        found.message.contains("probe Order was refused: admission webhook \"sober.orders.doctor.example\" denied"),
        "{found:?}"
    );

    clinic.delete(VALIDATING, "shop-validating").await;
    let accepted = || async {
        let examined = clinic.examine(&["--probe", path]).await;
        let found = examined.of("W12").first().map(|found| (*found).clone());
        found.filter(|found| found.verdict == "FAIL")
    };
    let found = wait_until("the probe to be accepted", PATIENCE, accepted).await;
    assert!(
        found.message.contains(&format!("probe was accepted: Order is not validated in {}", clinic.team)),
        "{found:?}"
    );
}

/// V3, V4
async fn a_denial_is_told_apart(clinic: &Clinic) {
    for (denial, words) in [
        ("admission webhook \"sober.orders.doctor.example\" denied the request: no", "a rule of this operator"),
        ("admission webhook \"x.y.z\" denied the request: no", "denied by x.y.z, not by this operator"),
        ("failed calling webhook \"sober.orders.doctor.example\": EOF", "could not be called; see the C and X checks"),
        ("spec.beer: Required value", "names no webhook"),
    ] {
        let examined = clinic.examine(&["--denial", denial]).await;
        assert!(examined.of("V3")[0].message.contains(words), "{denial}: {:?}", examined.of("V3"));
        assert!(examined.of("V4")[0].message.contains("you act as"), "{:?}", examined.of("V4"));
    }
}

/// X15: what the API server says of a certificate that it does not trust, as it is in the log. Breaks the bundles.
async fn a_call_under_a_foreign_bundle_is_in_the_operators_log(clinic: &Clinic) {
    let (now, day) = (Timestamp::now(), SignedDuration::from_hours(24));
    let foreign = Ca::generate("somebody else", now - day, now + day).unwrap();
    let bundle = json!(BASE64_STANDARD.encode(foreign.cert_pem()));
    for (sort, name) in [(VALIDATING, "shop-validating"), (MUTATING, "shop-mutating")] {
        let path = "/webhooks/0/clientConfig/caBundle";
        clinic.patch(sort, name, json!([{ "op": "replace", "path": path, "value": bundle }])).await;
    }
    let probe = file(&BAD.replace("metadata:", &format!("metadata:\n  namespace: {}", clinic.team)));
    let path = probe.path().to_str().unwrap();
    let said = || async {
        clinic.examine(&["--probe", path]).await;
        clinic.running.said("a caller does not trust the certificate that is served")
    };
    let line = wait_until("the log to say so", PATIENCE, said).await;
    assert!(line.contains("WARN") && line.contains("alert=BadCertificate"), "{line}");
}

/// X14: what only a second look shows.
async fn a_second_look_names_who_rewrites_a_bundle(clinic: &Clinic) {
    let fight = async {
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        for round in 0.. {
            tick.tick().await;
            let bundle = if round % 2 == 0 { "AAAA" } else { "BBBB" };
            let entry = json!({ "name": "sober.orders.doctor.example", "clientConfig": { "caBundle": bundle } });
            let part = json!({ "metadata": { "name": "shop-validating" }, "webhooks": [entry] });
            clinic.apply_as(VALIDATING, "argocd", part).await;
        }
    };
    let examined = tokio::select! {
        () = fight => unreachable!(),
        examined = clinic.examine(&["--watch", "1"]) => examined,
    };
    let found = &examined.of("X14")[0];
    assert!(
        found.verdict == "FAIL" && found.message.contains("caBundle was rewritten while it was looked at"),
        "{found:?}"
    );
    assert!(found.message.contains("argocd"), "{found:?}");
}

// D10: with flags.
#[tokio::test]
async fn people_ask_about_probes_denials_fights_and_deletions() {
    let clinic = Clinic::open().await;
    let chart = clinic.chart().await;
    a_denial_is_told_apart(&clinic).await;
    a_probe_is_refused_by_us_or_says_that_nobody_refuses(&clinic).await;
    clinic.mend(&chart).await;
    a_call_under_a_foreign_bundle_is_in_the_operators_log(&clinic).await;
    clinic.mend(&chart).await;
    a_second_look_names_who_rewrites_a_bundle(&clinic).await;
    clinic.mend(&chart).await;
    a_deletion_that_a_webhook_blocks_is_named(&clinic).await;
}

// V1
#[tokio::test]
async fn explain_names_every_rule_that_a_manifest_breaks_without_a_cluster() {
    let manifests = file(&format!("{BAD}---\n{OLD}"));
    let path = manifests.path().to_str().unwrap();
    let (code, stdout, stderr) = output(&["doctor", "explain", "-f", path], &[]).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stdout.contains("FAIL V1   Order ten: sober: that is too much (spec.glasses: 8 at most)"), "{stdout}");
    assert!(stdout.contains("fix: change spec.glasses"), "{stdout}");

    let (code, stdout, stderr) =
        output(&["doctor", "--output", "json", "explain", "-f", file(OLD).path().to_str().unwrap()], &[]).await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["findings"][0]["message"], "Order old: sober allows it");
    let last = report["findings"].as_array().unwrap().last().unwrap();
    assert_eq!(last["verdict"], "INFO");
    assert!(last["message"].as_str().unwrap().starts_with("only webhooks were asked: not the schema"), "{report}");
}

/// A wrong port, as the one that is taken where none is given: the whole installation works on another.
pub(crate) async fn a_port_that_nobody_calls_is_in_no_command(clinic: &Clinic) {
    clinic.patch(SECRET, "shop-webhook-tls", json!([{ "op": "remove", "path": "/data/ca.crt" }])).await;
    let examined = clinic.examine_without_port().await;
    let told = &examined.of("W4")[0];
    let (port, right) = (clinic.port, format!("--service-port={}", clinic.port));
    assert!(told.message.contains(&format!("calls port {port} of Service")), "{told:?}");
    assert!(told.fix.ends_with(&right), "{told:?}");
    let mends: Vec<_> = examined.findings.iter().filter(|found| found.fix.contains("shop certs ensure")).collect();
    assert!(!mends.is_empty() && mends.iter().all(|found| found.fix.contains(&right)), "{examined:#?}");
}

/// Colours only where people want them.
pub(crate) async fn people_get_colours_where_they_want_them(clinic: &Clinic) {
    let (code, plain) = clinic.text(&[], &[]).await;
    assert_eq!(code, 0, "{plain}");
    assert!(!plain.contains('\x1b') && plain.contains(" 0 WARN, 0 FAIL"), "{plain}");
    let (_, painted) = clinic.text(&["--color", "always", "--all"], &[("NO_COLOR", "1")]).await;
    assert!(painted.contains("\x1b[32mOK  \x1b[0m W1"), "{painted}");
}

#[tokio::test]
async fn a_command_line_that_does_not_parse_is_explained_with_exit_code_2() {
    let (code, _, stderr) = output(&["doctor", "--colour"], &[]).await;
    assert_eq!(code, 2, "{stderr}");
}
