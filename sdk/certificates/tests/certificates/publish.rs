//! The CA in the webhook configurations: by name, owned by no other manifest, restored when it is removed.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use portcullis_pki::Ca;
use serde_json::{Value, json};
use std::sync::Mutex;

use crate::fixture::{PATIENCE, Place, heard};

pub(crate) fn ca(name: &str) -> String {
    let now = jiff::Timestamp::now();
    let day = jiff::SignedDuration::from_hours(24);
    Ca::generate(name, now - day, now + day * 900).unwrap().cert_pem().to_owned()
}

// The bug of index-based injection: bundles change places with the entries.
#[tokio::test]
async fn each_bundle_stays_with_its_webhook_when_the_list_changes() {
    let place = Place::new().await;
    place.install(&["a", "b"]).await;
    let pem = ca("ours");
    let publisher = place.publish(&pem, &["a", "b"]);
    let ours = Some(pem.as_str());
    place.wait_for_bundles("both bundles", &[("a", ours), ("b", ours)]).await;
    publisher.published().await;

    // Another entry in front, with a bundle of its own, and the rest in another order.
    let theirs = ca("theirs");
    let mut manifest = place.manifest(&["x", "b", "a"]);
    let encoded = k8s_openapi::ByteString(theirs.clone().into_bytes());
    manifest["webhooks"][0]["clientConfig"]["caBundle"] = json!(encoded);
    let mark = place.cluster.audit().mark();
    let params = PatchParams::apply("installer");
    place.configuration_api().patch(&place.configuration(), &params, &Patch::Apply(manifest)).await.unwrap();
    assert_eq!(
        place.bundles().await,
        [("x", &theirs), ("b", &pem), ("a", &pem)].map(|(name, pem)| (name.to_owned(), Some(pem.clone())))
    );
    assert_eq!(place.writes(mark).await, 0);

    // An entry of ours that comes later gets its bundle; the foreign one is left alone.
    let publisher = {
        publisher.stop().await;
        place.publish(&pem, &["a", "b", "c"])
    };
    place.install(&["x", "c", "b", "a"]).await;
    // The manager that applied the foreign bundle removes it by an apply without it.
    place.wait_for_bundles("the new entry's bundle", &[("x", None), ("c", ours), ("b", ours), ("a", ours)]).await;
    publisher.stop().await;
}

#[tokio::test]
async fn a_bundle_that_something_else_changes_is_put_back() {
    let place = Place::new().await;
    place.install(&["a", "b"]).await;
    let pem = ca("ours");
    let publisher = place.publish(&pem, &["a", "b"]);
    let right: [(&str, Option<&str>); 2] = [("a", Some(&pem)), ("b", Some(&pem))];
    place.wait_for_bundles("both bundles", &right).await;
    let overwrite = |webhooks: Value| {
        let place = &place;
        async move {
            // A list is replaced as a whole: what `kubectl replace` and Helm's three-way merge can come down to.
            let patch = Patch::Merge(json!({ "webhooks": webhooks }));
            place.configuration_api().patch(&place.configuration(), &PatchParams::default(), &patch).await.unwrap();
        }
    };
    overwrite(place.manifest(&["a", "b"])["webhooks"].clone()).await;
    place.wait_for_bundles("both bundles again", &right).await;
    let mut foreign = place.manifest(&["a", "b"])["webhooks"].clone();
    foreign[1]["clientConfig"]["caBundle"] = json!(k8s_openapi::ByteString(ca("theirs").into_bytes()));
    overwrite(foreign).await;
    place.wait_for_bundles("both bundles once more", &right).await;

    // Deleted and installed again.
    place.configuration_api().delete(&place.configuration(), &DeleteParams::default()).await.unwrap();
    place.install(&["b", "a"]).await;
    place.wait_for_bundles("both bundles after a new installation", &[right[1], right[0]]).await;
    publisher.stop().await;
}

#[tokio::test]
async fn nothing_is_written_while_the_bytes_are_right() {
    let place = Place::new().await;
    place.install(&["a", "b"]).await;
    let pem = ca("ours");
    let mark = place.cluster.audit().mark();
    let publisher = place.publish(&pem, &["a", "b"]);
    publisher.published().await;
    publisher.stop().await;
    assert_eq!(place.writes(mark).await, 1, "one write for all entries");

    // A restart, and the manifest's owner applying it again, without a bundle, as it always does.
    let mark = place.cluster.audit().mark();
    let publisher = place.publish(&pem, &["a", "b"]);
    publisher.published().await;
    let version =
        || async { place.configuration_api().get(&place.configuration()).await.unwrap().metadata.resource_version };
    let before = version().await;
    place.install(&["a", "b"]).await;
    assert_eq!(version().await, before, "the owner's apply changes nothing, our bundle least of all");
    // Something that is not about bundles: seen, and no reason to write.
    let label = Patch::Merge(json!({ "metadata": { "labels": { "seen": "yes" } } }));
    place.configuration_api().patch(&place.configuration(), &PatchParams::default(), &label).await.unwrap();
    // A new CA is written after all that came before it was looked at.
    let next = ca("next");
    publisher.bundle.publish(&next);
    publisher.published().await;
    let writes = place.cluster.audit().writes_by(&place.user.name, mark).await;
    // One that met the label on its way is refused as a conflict, and repeated.
    assert_eq!(writes.iter().filter(|write| write.code == 200).count(), 1, "{writes:?}");
    place.wait_for_bundles("the next CA", &[("a", Some(&next)), ("b", Some(&next))]).await;
    publisher.stop().await;
}

// With server-side apply we would own the entries with the bundles, and this would be refused: "sideEffects: Required
// value".
#[tokio::test]
async fn who_applies_the_manifest_can_take_a_webhook_out_again() {
    let place = Place::new().await;
    place.install(&["a", "b"]).await;
    let pem = ca("ours");
    let publisher = place.publish(&pem, &["a", "b"]);
    publisher.published().await;
    place.install(&["b"]).await;
    assert_eq!(place.bundles().await, [("b".to_owned(), Some(pem.clone()))]);

    let configuration = place.configuration_api().get(&place.configuration()).await.unwrap();
    let manager = format!("{}-ca-bundle", place.name);
    let ours =
        configuration.metadata.managed_fields.unwrap().into_iter().find(|entry| entry.manager == Some(manager.clone()));
    assert_eq!(
        serde_json::to_value(ours.unwrap().fields_v1).unwrap(),
        json!({ "f:webhooks": { "k:{\"name\":\"b.configmaps.core\"}": { "f:clientConfig": { "f:caBundle": {} } } } }),
        "the bundle is all we own"
    );
    publisher.stop().await;
}

#[tokio::test]
async fn publishing_waits_for_the_configuration_and_says_so() {
    let place = Place::new().await;
    let pem = ca("ours");
    let publisher = place.publish(&pem, &["a"]);
    let said = Mutex::new(Vec::new());
    let waiting = publisher
        .bundle
        .wait_until_published(&publisher.configurations, |missing| said.lock().unwrap().push(missing.to_owned()));
    let steps = async {
        heard(&said, "it is not installed; see 'generate webhooks'").await;
        place.install(&["somebody-elses"]).await;
        heard(&said, "it registers none of the webhooks that are served").await;
        place.install(&["a"]).await;
    };
    let (bundle, ()) = tokio::join!(waiting, steps);
    assert_eq!(*bundle, *pem);
    let first = said.lock().unwrap()[0].clone();
    assert_eq!(first, format!("the CA to be published in ValidatingWebhookConfiguration {}", place.configuration()));
    publisher.stop().await;
}

/// Both are cluster-wide under one name: a second copy of the operator, started for a trial, would lock the first one's
/// users out.
#[tokio::test]
async fn webhooks_of_another_namespaces_installation_are_left_alone() {
    let place = Place::new().await;
    let mut manifest = place.manifest(&["a", "b"]);
    manifest["webhooks"][0]["clientConfig"]["service"]["namespace"] = json!("elsewhere");
    let params = PatchParams::apply("installer");
    place.configuration_api().patch(&place.configuration(), &params, &Patch::Apply(manifest)).await.unwrap();
    let pem = ca("ours");
    let publisher = place.publish(&pem, &["a", "b"]);
    place.wait_for_bundles("our bundle", &[("a", None), ("b", Some(&pem))]).await;
    publisher.stop().await;

    let publisher = place.publish(&pem, &["a"]);
    let said = Mutex::new(Vec::new());
    let waiting = publisher
        .bundle
        .wait_until_published(&publisher.configurations, |missing| said.lock().unwrap().push(missing.to_owned()));
    let why = "it calls webhook.elsewhere.svc, of another installation; give --namespace and --service-name, or see \
               'generate webhooks'";
    tokio::select! {
        _ = waiting => panic!("it is not published"),
        () = heard(&said, why) => {}
    }
    assert_eq!(place.bundles().await[0].1, None);
    publisher.stop().await;
}

#[tokio::test]
async fn a_mutating_configuration_is_looked_after_in_the_same_way() {
    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
    let place = Place::new().await;
    let mut manifest = place.manifest(&["a"]);
    manifest["kind"] = json!("MutatingWebhookConfiguration");
    let api: Api<MutatingWebhookConfiguration> = Api::all(place.admin.clone());
    let params = PatchParams::apply("installer");
    api.patch(&place.configuration(), &params, &Patch::Apply(manifest)).await.unwrap();
    let pem = ca("ours");
    let bundle = portcullis::certificates::Bundle::new(&place.name, &pem);
    let mut configurations = place.configurations(&["a"]);
    std::mem::swap(&mut configurations.validating, &mut configurations.mutating);
    let stop = tokio_util::sync::CancellationToken::new();
    let done = async {
        tokio::time::timeout(PATIENCE, bundle.wait_until_published(&configurations, |_| {})).await.unwrap();
        stop.cancel();
    };
    // The rights of this place are for its validating webhooks.
    let client = place.admin.clone();
    tokio::join!(bundle.maintain(&client, &configurations, &stop), done);
    let webhooks = api.get(&place.configuration()).await.unwrap().webhooks.unwrap();
    assert_eq!(webhooks[0].client_config.ca_bundle.as_ref().unwrap().0, pem.as_bytes());
}
