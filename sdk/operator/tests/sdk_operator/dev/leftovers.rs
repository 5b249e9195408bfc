//! What sessions leave behind that could not put things in order, and who removes it.

use std::net::{Ipv4Addr, TcpListener};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{Patch, PatchParams};
use portcullis_testing::ControlPlane;
use serde_json::{Value, json};

use super::fixture::{PEOPLE, alone, cluster, cluster_with_people, configurations, lasting, people_crd, start};
use super::process::{ENTITIES, VERSIONS};

/// A configuration as another person's session would have left it, which ends at this time.
async fn leave(cluster: &ControlPlane, release: &str, owner: &str, expires: Timestamp) {
    let name = format!("{release}-dev-{owner}-validating");
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {
            "name": name,
            "labels": { "portcullis.dev/dev-of": release, "portcullis.dev/dev-owner": owner },
            "annotations": { "portcullis.dev/dev-expires": expires.to_string(), "portcullis.dev/dev-session": "gone" },
        },
    });
    cluster.apply(&[configuration]).await;
}

// K6
#[tokio::test]
async fn what_a_killed_session_leaves_is_removed_by_the_next() {
    let _alone = alone().await;
    let cluster = cluster_with_people().await;
    let before = people_crd(cluster).await;
    let mut dev = start(cluster, VERSIONS, "ann", &[]);
    dev.open().await;
    dev.signal("-KILL").await;
    dev.ended().await;
    assert_ne!(people_crd(cluster).await.spec.conversion, before.spec.conversion);

    // The next session begins with what was there before the first, and ends with it.
    let mut next = start(cluster, VERSIONS, "ann", &[]);
    next.open().await;
    let said = next.end("-TERM").await;
    assert!(said.contains(&format!("gave the conversion of {PEOPLE} back, which ann")), "{said}");
    assert_eq!(lasting(&people_crd(cluster).await), lasting(&before));
}

#[tokio::test]
async fn sweeping_alone_puts_a_cluster_in_order() {
    let _alone = alone().await;
    let cluster = cluster_with_people().await;
    let before = people_crd(cluster).await;
    for changed in [false, true] {
        let mut dev = start(cluster, VERSIONS, "ann", &[]);
        dev.open().await;
        dev.signal("-KILL").await;
        dev.ended().await;
        if changed {
            change(cluster, &json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } })).await;
        }
        let mut sweep = start(cluster, VERSIONS, "ann", &["--sweep"]);
        assert_eq!(sweep.ended().await.code(), Some(0), "{}", sweep.said());
        let after = people_crd(cluster).await;
        if changed {
            // Whoever changed it since had a reason.
            assert!(sweep.said().contains("somebody has changed it since"), "{}", sweep.said());
            assert_eq!(json!(after.spec.conversion), json!({ "strategy": "None" }));
            assert_eq!(after.metadata.annotations, before.metadata.annotations);
        } else {
            assert_eq!(lasting(&after), lasting(&before), "{}", sweep.said());
        }
    }
}

async fn change(cluster: &ControlPlane, patch: &Value) {
    let crds: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(cluster.admin());
    crds.patch(PEOPLE, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn sessions_of_others_are_swept_when_they_have_expired_and_left_while_they_live() {
    let cluster = cluster().await;
    let now = Timestamp::now();
    leave(cluster, "sweeping", "expired", now - SignedDuration::from_hours(1)).await;
    leave(cluster, "sweeping", "live", now + SignedDuration::from_mins(1)).await;
    leave(cluster, "another-operator", "expired", now - SignedDuration::from_hours(1)).await;
    let mut sweep = start(cluster, ENTITIES, "tidy", &["--release", "sweeping", "--sweep"]);
    assert_eq!(sweep.ended().await.code(), Some(0), "{}", sweep.said());
    assert!(sweep.said().contains("of expired (until "), "{}", sweep.said());
    assert_eq!(configurations(cluster, "expired").await, ["another-operator-dev-expired-validating"]);
    assert_eq!(configurations(cluster, "live").await, ["sweeping-dev-live-validating"]);
}

#[tokio::test]
async fn sweeping_listens_on_nothing_ends_sessions_at_work_and_says_when_there_is_nothing() {
    let cluster = cluster().await;
    let mut dev = start(cluster, ENTITIES, "broom", &["--only-namespace", "nobody-s"]);
    dev.open().await;
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for words in ["removed what belongs to a session of broom (until ", "nothing to remove: neither sessions of broom"]
    {
        let mut sweep = start(cluster, ENTITIES, "broom", &["--sweep", "--port", &port]);
        assert_eq!(sweep.ended().await.code(), Some(0), "{}", sweep.said());
        assert!(sweep.said().contains(words), "{}", sweep.said());
    }
    let error = dev.fails().await;
    assert!(error.contains("entity-operator-dev-broom-mutating is no longer this session's"), "{error}");
}

#[tokio::test]
async fn a_session_that_another_took_over_says_so_and_removes_nothing_that_is_not_its_own() {
    let cluster = cluster().await;
    let only = ["--only-namespace", "nobody-s"];
    let mut first = start(cluster, ENTITIES, "twice", &only);
    first.open().await;
    let mut second = start(cluster, ENTITIES, "twice", &only);
    second.open().await;
    assert!(second.said().contains("removed ValidatingWebhookConfiguration"), "{}", second.said());
    let note = "this session takes the place of a session of twice (until ";
    assert!(second.said().contains(note), "{}", second.said());
    let error = first.fails().await;
    assert!(error.contains("another session of twice (until ") && error.contains("--owner NAME"), "{error}");
    assert_eq!(configurations(cluster, "twice").await.len(), 2);
    second.end("-TERM").await;
    assert_eq!(configurations(cluster, "twice").await, [""; 0]);
}

#[tokio::test]
async fn a_session_that_another_took_the_conversion_from_says_so_and_leaves_it() {
    let _alone = alone().await;
    let cluster = cluster_with_people().await;
    let before = people_crd(cluster).await;
    let mut first = start(cluster, VERSIONS, "ann", &[]);
    first.open().await;
    let mut second = start(cluster, VERSIONS, "ann", &[]);
    second.open().await;
    let lent = people_crd(cluster).await;
    let error = first.fails().await;
    assert!(error.contains(&format!("has lost the conversion of {PEOPLE}")), "{error}");
    assert_eq!(people_crd(cluster).await, lent);
    second.end("-TERM").await;
    assert_eq!(lasting(&people_crd(cluster).await), lasting(&before));
}

#[tokio::test]
async fn what_has_a_sessions_name_and_is_none_is_left() {
    let cluster = cluster().await;
    let name = "entity-operator-dev-namesake-validating";
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": { "name": name },
    });
    cluster.apply(&[object]).await;
    let error = start(cluster, ENTITIES, "namesake", &["--only-namespace", "nobody-s"]).fails().await;
    assert!(error.contains(&format!("{name} is there, and is no session's")), "{error}");
    let all: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin());
    all.get(name).await.unwrap();
    assert_eq!(configurations(cluster, "namesake").await, [name]);
}
