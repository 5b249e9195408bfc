//! Questions of people, and the rights of readers.

use std::io::Write as _;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use portcullis_testing::{Grant, wait_until};
use serde_json::{Value, json};

use crate::clinic::{Clinic, SERVICE, Sort, VALIDATING};
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

/// D10, least rights: the report of a user who may not read everything says what was not checked. Removes a
/// configuration.
pub(crate) async fn a_reader_learns_what_was_not_checked(clinic: &Clinic) {
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
    // A check that this user may make still fails where it should.
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

/// V3
async fn the_author_of_a_denial_is_found(clinic: &Clinic) {
    for (denial, words) in [
        ("admission webhook \"sober.orders.doctor.example\" denied the request: no", "a rule of this operator"),
        ("admission webhook \"x.y.z\" denied the request: no", "denied by x.y.z, not by this operator"),
        ("failed calling webhook \"sober.orders.doctor.example\": EOF", "could not be called; see the C and X checks"),
        ("spec.beer: Required value", "names no webhook"),
    ] {
        let examined = clinic.examine(&["--denial", denial]).await;
        assert!(examined.of("V3")[0].message.contains(words), "{denial}: {:?}", examined.of("V3"));
    }
}

// D10: with flags.
#[tokio::test]
async fn people_ask_about_denials_and_deletions() {
    let clinic = Clinic::open().await;
    the_author_of_a_denial_is_found(&clinic).await;
    a_deletion_that_a_webhook_blocks_is_named(&clinic).await;
}

// V1
#[tokio::test]
async fn explain_names_every_broken_rule_without_a_cluster() {
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

/// Colours only where people want them.
pub(crate) async fn people_get_colours_where_they_want_them(clinic: &Clinic) {
    let (code, plain) = clinic.text(&[], &[]).await;
    assert_eq!(code, 0, "{plain}");
    assert!(!plain.contains('\x1b') && plain.contains(" 0 WARN, 0 FAIL"), "{plain}");
    let (_, painted) = clinic.text(&["--color", "always", "--all"], &[("NO_COLOR", "1")]).await;
    assert!(painted.contains("\x1b[32mOK  \x1b[0m W1"), "{painted}");
}

#[tokio::test]
async fn an_invalid_command_line_is_explained_with_exit_code_2() {
    let (code, _, stderr) = output(&["doctor", "--colour"], &[]).await;
    assert_eq!(code, 2, "{stderr}");
}
