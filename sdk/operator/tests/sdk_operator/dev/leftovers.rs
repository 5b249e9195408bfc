//! Leftovers of sessions that could not clean up, and their removal.

use std::net::{Ipv4Addr, TcpListener};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use portcullis_testing::ControlPlane;
use serde_json::json;

use super::fixture::{cluster, configurations, start};
use super::process::ENTITIES;

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
    let cluster = cluster().await;
    let only = ["--only-namespace", "nobody-s"];
    let mut dev = start(cluster, ENTITIES, "killed", &only);
    dev.open().await;
    dev.signal("-KILL").await;
    dev.ended().await;
    assert_eq!(configurations(cluster, "killed").await.len(), 2);
    let mut next = start(cluster, ENTITIES, "killed", &only);
    next.open().await;
    let said = next.end("-TERM").await;
    assert!(said.contains("removed ValidatingWebhookConfiguration"), "{said}");
    assert_eq!(configurations(cluster, "killed").await, [""; 0]);
}

#[tokio::test]
async fn other_peoples_sessions_are_swept_only_when_expired() {
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
async fn sweeping_opens_no_port_and_says_what_it_removed() {
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
    dev.end("-TERM").await;
}

#[tokio::test]
async fn a_replaced_session_removes_nothing_of_its_successor() {
    let cluster = cluster().await;
    let only = ["--only-namespace", "nobody-s"];
    let mut first = start(cluster, ENTITIES, "twice", &only);
    first.open().await;
    let mut second = start(cluster, ENTITIES, "twice", &only);
    second.open().await;
    assert!(second.said().contains("removed ValidatingWebhookConfiguration"), "{}", second.said());
    let note = "this session takes the place of a session of twice (until ";
    assert!(second.said().contains(note), "{}", second.said());
    first.end("-TERM").await;
    assert_eq!(configurations(cluster, "twice").await.len(), 2);
    second.end("-TERM").await;
    assert_eq!(configurations(cluster, "twice").await, [""; 0]);
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
