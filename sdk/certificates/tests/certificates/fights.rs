//! Others who undo what we do, and rights that are missing: no reason to write as fast as we can.

use std::sync::Mutex;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis::certificates::Bundle;
use portcullis_testing::{Mark, wait_until};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fixture::{PATIENCE, Place, Publisher};
use crate::refusals::store_pair;

/// The first pause of these fights: a fifth of what it is elsewhere.
const PAUSE: Duration = Duration::from_millis(100);
/// Writes that each fight goes on for.
const FIGHT: usize = 5;

/// Holds the times of the writes since `mark` against the pauses: 0.1 s, 0.2 s, 0.4 s and so on. None needs to be
/// between the first two.
async fn wrote_ever_more_slowly(place: &Place, mark: Mark) {
    let writes = place.cluster.audit().writes_by(&place.user.name, mark).await;
    assert!(writes.len() >= FIGHT, "{writes:?}");
    let mut pause = PAUSE;
    for (before, after) in writes[1..].iter().zip(&writes[2..]) {
        let paused = after.at.duration_since(before.at).unsigned_abs();
        assert!(paused >= pause, "{paused:?} and not {pause:?} before {}: {writes:?}", after.at);
        pause *= 2;
    }
}

#[tokio::test]
async fn a_bundle_that_keeps_being_removed_is_restored_with_backoff() {
    let place = Place::new().await;
    place.install(&["a"]).await;
    let pem = place.source().ensure().await.unwrap().ca_pem;
    let bundle = Bundle::new(&place.name, &pem).with_services([place.server_name()]).pausing(PAUSE);
    let publisher = Publisher::start(&place.user, bundle, place.configurations(&["a"]));
    publisher.published().await;
    let mark = place.cluster.audit().mark();
    while place.writes(mark).await < FIGHT {
        let removed = Patch::Merge(json!({ "webhooks": place.manifest(&["a"])["webhooks"] }));
        place.configuration_api().patch(&place.configuration(), &PatchParams::default(), &removed).await.unwrap();
        wait_until("it to be put back", PATIENCE, || async { place.bundles().await[0].1.clone() }).await;
    }
    wrote_ever_more_slowly(&place, mark).await;
    // And in the end it is there.
    place.wait_for_bundles("the last repair", &[("a", Some(&pem))]).await;
    publisher.stop().await;
}

#[tokio::test]
async fn a_refused_write_is_retried_with_backoff_until_it_succeeds() {
    let mut place = Place::new().await;
    place.install(&["a"]).await;
    let pem = place.source().ensure().await.unwrap().ca_pem;
    let rule = |verbs: &[&str]| PolicyRule {
        api_groups: Some(vec!["admissionregistration.k8s.io".to_owned()]),
        resources: Some(vec!["validatingwebhookconfigurations".to_owned()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    place.user = place.cluster.client_with_rules("reader", &[rule(&["list", "watch"])]).await;
    let mark = place.cluster.audit().mark();
    let begun = Instant::now();
    let publisher = place.publish(&pem, &["a"]);
    wait_until("the third try", PATIENCE, || async { (place.writes(mark).await >= 3).then_some(()) }).await;
    assert!(begun.elapsed() >= Duration::from_millis(1400), "three tries within {:?}", begun.elapsed());
    let why = Mutex::new(String::new());
    let said = publisher
        .bundle
        .wait_until_published(&publisher.configurations, |missing| missing.clone_into(&mut why.lock().unwrap()));
    assert!(tokio::time::timeout(Duration::from_millis(50), said).await.is_err(), "it is not published");
    assert!(why.lock().unwrap().contains("forbidden"), "{why:?}");

    // The right is granted, and the object is left alone: the next try succeeds.
    let roles: Api<ClusterRole> = Api::all(place.admin.clone());
    let granted = Patch::Merge(json!({ "rules": [rule(&["list", "watch", "patch"])] }));
    roles.patch(&format!("{}-0", place.user.name), &PatchParams::default(), &granted).await.unwrap();
    place.wait_for_bundles("the bundle", &[("a", Some(&pem))]).await;
    publisher.stop().await;
}

#[tokio::test]
async fn a_secret_that_keeps_being_damaged_is_repaired_with_backoff() {
    let place = Place::new().await;
    place.install(&["a"]).await;
    let source = place.source().pausing(PAUSE);
    let made = source.ensure().await.unwrap();
    let tls = ArcSwap::from_pointee(made.tls_config(&source.provider).unwrap());
    let (bundle, stop) = (Bundle::new(&place.name, &made.ca_pem), CancellationToken::new());
    let mark = place.cluster.audit().mark();
    let fight = async {
        while place.writes(mark).await < FIGHT {
            place.overwrite(&place.secret(), &[("tls.key", "")]).await;
            let sound = || async { place.stored().await.filter(|stored| !stored.key_pem.is_empty()) };
            let repaired = wait_until("a repair", PATIENCE, sound).await;
            assert_eq!(repaired.ca_pem, made.ca_pem);
        }
        wrote_ever_more_slowly(&place, mark).await;
        stop.cancel();
    };
    tokio::join!(source.maintain(made.clone(), &tls, &bundle, &stop), fight);
}

// A policy of the cluster, which undoes a write before it is stored. So no round ever sees what it wrote.
#[tokio::test]
async fn what_is_undone_as_it_is_written_is_written_ever_more_slowly() {
    let place = Place::new().await;
    place.install(&["a"]).await;
    let source = place.source().pausing(PAUSE);
    let made = source.ensure().await.unwrap();
    let tls = ArcSwap::from_pointee(made.tls_config(&source.provider).unwrap());
    let (bundle, stop) = (Bundle::new(&place.name, &made.ca_pem), CancellationToken::new());
    let put = async |kind: &str, spec: Value| {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let policies = Api::<DynamicObject>::all_with(place.admin.clone(), &ApiResource::from_gvk(&kind));
        let policy = DynamicObject::new(&place.name, &ApiResource::from_gvk(&kind)).data(json!({ "spec": spec }));
        policies.create(&PostParams::default(), &policy).await.unwrap();
    };
    let secrets = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"],
    });
    let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": place.name } });
    let without = "[JSONPatch{op: 'remove', path: '/data/ca.crt'}]";
    let policy = json!({
        "matchConstraints": { "namespaceSelector": here, "resourceRules": [secrets] },
        "matchConditions": [{ "name": "pair", "expression": "'tls.crt' in object.data && 'ca.crt' in object.data" }],
        "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": without } }],
        "failurePolicy": "Fail", "reinvocationPolicy": "Never",
    });
    put("MutatingAdmissionPolicy", policy).await;
    put("MutatingAdmissionPolicyBinding", json!({ "policyName": place.name })).await;
    let stripped = || async {
        place.overwrite(&place.secret(), &[("ca.crt", &made.ca_pem)]).await;
        place.stored().await.is_none().then_some(())
    };
    wait_until("the policy to be followed", PATIENCE, stripped).await;

    let mark = place.cluster.audit().mark();
    let fight = async {
        let fought = || async { (place.writes(mark).await >= FIGHT).then_some(()) };
        wait_until("it to be written again and again", PATIENCE, fought).await;
        wrote_ever_more_slowly(&place, mark).await;
        stop.cancel();
    };
    tokio::join!(source.maintain(made.clone(), &tls, &bundle, &stop), fight);
    // A replica that starts meanwhile serves the stored pair.
    assert_eq!(source.ensure().await.unwrap(), made);
}

// A mirror or a GitOps tool that holds on to an old copy.
#[tokio::test]
async fn a_step_that_keeps_being_undone_is_retried_with_backoff() {
    let place = Place::new().await;
    place.install(&["a"]).await;
    let source = place.source().pausing(PAUSE);
    let made = source.ensure().await.unwrap();
    store_pair(&place, 20).await;
    let old = place.stored().await.unwrap();
    let tls = ArcSwap::from_pointee(made.tls_config(&source.provider).unwrap());
    let (bundle, stop) = (Bundle::new(&place.name, &made.ca_pem), CancellationToken::new());
    let mark = place.cluster.audit().mark();
    let fight = async {
        while place.writes(mark).await < FIGHT {
            let renewed = || async { place.stored().await.filter(|stored| stored.cert_pem != old.cert_pem) };
            wait_until("a renewal", PATIENCE, renewed).await;
            let copy = [("tls.crt", &*old.cert_pem), ("tls.key", &*old.key_pem)];
            place.overwrite(&place.secret(), &copy).await;
        }
        wrote_ever_more_slowly(&place, mark).await;
        stop.cancel();
    };
    tokio::join!(source.maintain(made.clone(), &tls, &bundle, &stop), fight);
}

#[tokio::test]
async fn a_repair_that_is_refused_is_tried_again_until_it_is_granted() {
    let place = Place::new().await;
    place.install(&["a"]).await;
    let made = place.source().ensure().await.unwrap();
    // The rights of the operator, without the one to write what is there.
    let roles: Api<Role> = Api::namespaced(place.admin.clone(), &place.name);
    let role = format!("{}-1", place.user.name);
    let granted = serde_json::to_value(roles.get(&role).await.unwrap().rules).unwrap();
    let mut narrowed = granted.clone();
    let verbs = narrowed.as_array_mut().unwrap().iter_mut().map(|rule| rule["verbs"].as_array_mut().unwrap());
    verbs.for_each(|verbs| verbs.retain(|verb| verb != "patch"));
    let set = |rights: Value| {
        let (roles, role) = (&roles, &role);
        async move {
            let patch = Patch::Merge(json!({ "rules": rights }));
            roles.patch(role, &PatchParams::default(), &patch).await.unwrap();
        }
    };
    set(narrowed).await;
    let secrets: Api<Secret> = Api::namespaced(place.user.client.clone(), &place.name);
    let dry = PatchParams { dry_run: true, ..Default::default() };
    let refused = || async { secrets.patch(&place.secret(), &dry, &Patch::Merge(json!({}))).await.err() };
    wait_until("the right to be gone", PATIENCE, refused).await;

    let source = place.source();
    let tls = ArcSwap::from_pointee(made.tls_config(&source.provider).unwrap());
    let (bundle, stop) = (Bundle::new(&place.name, &made.ca_pem), CancellationToken::new());
    let mark = place.cluster.audit().mark();
    let story = async {
        place.overwrite(&place.secret(), &[("tls.key", "")]).await;
        wait_until("the second try", PATIENCE, || async { (place.writes(mark).await >= 2).then_some(()) }).await;
        set(granted).await;
        let sound = || async { place.stored().await.filter(|stored| !stored.key_pem.is_empty()) };
        wait_until("the repair", PATIENCE, sound).await;
        stop.cancel();
    };
    tokio::join!(source.maintain(made.clone(), &tls, &bundle, &stop), story);
}
