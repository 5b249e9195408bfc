//! Requests that the API server denies: an error at once if nothing can be served, and otherwise no reason to stop
//! serving.

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use portcullis_pki::{Ca, CertificateParams, Usage};
use portcullis_testing::wait_until;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fixture::{PATIENCE, Place};

/// Takes the right to write Secrets away from the operator, and waits until that is in force.
async fn forbid_writes(place: &Place) {
    let roles: Api<Role> = Api::namespaced(place.admin.clone(), &place.name);
    let role = format!("{}-1", place.user.name);
    let mut rights = roles.get(&role).await.unwrap().rules.unwrap();
    for right in &mut rights {
        right.verbs.retain(|verb| verb != "patch" && verb != "create");
    }
    rights.retain(|rule| !rule.verbs.is_empty());
    let patch = Patch::Merge(json!({ "rules": rights }));
    roles.patch(&role, &PatchParams::default(), &patch).await.unwrap();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(place.user.client.clone(), &place.name);
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let refused = || async { secrets.patch(&place.secret(), &dry, &Patch::Merge(json!({}))).await.err() };
    wait_until("the right to be gone", PATIENCE, refused).await;
}

/// Stores a pair with this many days left under the stored CA, and returns its certificate.
pub(crate) async fn store_pair(place: &Place, days: i32) -> String {
    let data = place.read(&place.ca_secret()).await.unwrap().data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let now = Timestamp::now();
    let pair = Ca::from_pem(&text("ca.crt"), &text("ca.key"))
        .unwrap()
        .issue(&CertificateParams {
            common_name: "test",
            organizations: &[],
            dns_names: &[place.server_name()],
            ip_addresses: &[],
            not_before: now - SignedDuration::from_hours(1),
            not_after: now + SignedDuration::from_hours(24) * days,
            usage: Usage::Server,
        })
        .unwrap();
    place.overwrite(&place.secret(), &[("tls.crt", &pair.cert_pem), ("tls.key", &pair.key_pem)]).await;
    pair.cert_pem
}

#[tokio::test]
async fn a_start_that_may_not_renew_serves_what_it_has() {
    let place = Place::new().await;
    place.source().ensure().await.unwrap();
    let few_days = store_pair(&place, 20).await;
    forbid_writes(&place).await;
    assert_eq!(place.source().ensure().await.unwrap().cert_pem, few_days);

    // The same where the CA is damaged, or its Secret gone, or the bundle beside the pair not right.
    let whole = place.stored().await.unwrap();
    place.overwrite(&place.ca_secret(), &[("ca.key", "")]).await;
    assert_eq!(place.source().ensure().await.unwrap(), whole);
    place.delete(&place.ca_secret()).await;
    assert_eq!(place.source().ensure().await.unwrap(), whole);
}

#[tokio::test]
async fn a_refusal_at_the_first_start_is_permanent_and_names_the_fix() {
    let place = Place::new().await;
    place.source().ensure().await.unwrap();
    forbid_writes(&place).await;
    place.delete(&place.secret()).await;
    let error = place.source().ensure().await.unwrap_err();
    assert!(error.is_permanent(), "{error}");
    let said = error.to_string();
    assert!(said.starts_with(&format!("cannot create Secret {}/{}: ", place.name, place.secret())), "{said}");
    assert!(said.ends_with("; compare the roles with 'generate rbac'"), "{said}");
}

// Roles have nothing to do with it.
#[tokio::test]
async fn a_refusal_for_other_reasons_than_rbac_names_no_role() {
    let place = Place::new().await;
    let namespaces: Api<Namespace> = Api::all(place.admin.clone());
    let hold = |finalizers: Value| Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    namespaces.patch(&place.name, &PatchParams::default(), &hold(json!(["test.example/hold"]))).await.unwrap();
    namespaces.delete(&place.name, &DeleteParams::default()).await.unwrap();
    let mut source = place.source();
    source.client = place.admin.clone();
    let said = source.ensure().await.unwrap_err().to_string();
    assert!(said.starts_with(&format!("cannot create Secret {}/", place.name)), "{said}");
    assert!(said.ends_with("because it is being terminated"), "{said}");
    namespaces.patch(&place.name, &PatchParams::default(), &hold(json!(null))).await.unwrap();
}

// Callers trust the old pair: it is served while it is valid, when no other can be published.
#[tokio::test]
async fn a_replica_that_cannot_repair_goes_on_serving() {
    let place = Place::new().await;
    place.install(&["a"]).await;
    let source = place.quick_source();
    let made = source.ensure().await.unwrap();
    let tls = ArcSwap::from_pointee(made.tls_config(&source.provider).unwrap());
    let (before, bundle, stop) = (tls.load_full(), source.bundle(&place.name, &made), CancellationToken::new());
    let reads = place.cluster.audit().mark();
    let story = async {
        forbid_writes(&place).await;
        place.overwrite(&place.secret(), &[("tls.key", ""), ("ca.crt", "")]).await;
        wait_until("two tries", PATIENCE, || async { (place.writes(reads).await >= 3).then_some(()) }).await;
        assert!(std::sync::Arc::ptr_eq(&before, &tls.load_full()));
        stop.cancel();
    };
    tokio::join!(source.maintain(made.clone(), &tls, &bundle, &stop), story);
}
