//! The two Secrets: who makes them, and who takes them up again.

use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use portcullis::certificates::RotationTiming;
use portcullis_pki::check_server_pair;
use serde_json::json;

use crate::fixture::Place;

// D3: made, kept in Secrets, reused while more than 30 days are left.
#[tokio::test]
async fn a_restart_uses_the_stored_certificates_without_a_write() {
    let place = Place::new().await;
    let made = place.source().ensure().await.unwrap();
    let names = [place.server_name()];
    let leaf = check_server_pair(
        made.cert_pem.as_bytes(),
        made.key_pem.as_bytes(),
        made.ca_pem.as_bytes(),
        &names,
        Timestamp::now(),
        RotationTiming::default().leaf_left,
    )
    .unwrap();
    assert_eq!(leaf.dns_names, names);
    assert!(leaf.not_after.duration_since(Timestamp::now()) > SignedDuration::from_hours(360 * 24));

    assert_eq!(place.stored().await.as_ref(), Some(&made));
    let keys = |data: Option<std::collections::BTreeMap<String, _>>| data.unwrap().into_keys().collect::<Vec<_>>();
    let (pair, ca) = (place.read(&place.secret()).await.unwrap(), place.read(&place.ca_secret()).await.unwrap());
    assert_eq!(
        (pair.type_.as_deref(), keys(pair.data)),
        (Some("kubernetes.io/tls"), ["ca.crt", "tls.crt", "tls.key"].map(String::from).to_vec())
    );
    assert_eq!(keys(ca.data), ["ca.crt", "ca.key"], "the CA's key is in a Secret of its own, which no listener reads");

    let mark = place.cluster.audit().mark();
    assert_eq!(place.source().ensure().await.unwrap(), made);
    assert_eq!(place.writes(mark).await, 0);
}

#[tokio::test]
async fn starts_at_once_agree_on_one_ca_and_one_leaf() {
    let place = Place::new().await;
    for (starts, rounds) in [(2, 12), (5, 12)] {
        for round in 0..rounds {
            // Every other round races for the repair of what is there, the rest for what is not.
            if round % 2 == 1 {
                place.overwrite(&place.ca_secret(), &[("ca.key", "")]).await;
                place.overwrite(&place.secret(), &[("tls.crt", "garbage")]).await;
            } else if place.stored().await.is_some() {
                place.delete(&place.ca_secret()).await;
                place.delete(&place.secret()).await;
            }
            let sources: Vec<_> = (0..starts).map(|_| place.source()).collect();
            let found: Vec<_> = join_all(sources.iter().map(|source| async { source.ensure().await.unwrap() })).await;
            let stored = place.stored().await.unwrap();
            assert!(found.iter().all(|material| *material == stored), "round {round} of {starts} starts");
        }
    }
}

// A process killed between the two Secrets, or between any two requests, leaves what the next start completes.
#[tokio::test]
async fn a_killed_start_is_completed_by_the_next_under_the_same_ca() {
    let place = Place::new().await;
    let made = place.source().ensure().await.unwrap();
    place.delete(&place.secret()).await;
    let completed = place.source().ensure().await.unwrap();
    assert_eq!(completed.ca_pem, made.ca_pem);
    assert_ne!(completed.cert_pem, made.cert_pem);

    let mut halves = 0;
    for step in 0..24 {
        place.delete(&place.secret()).await;
        place.delete(&place.ca_secret()).await;
        // Dropped in the middle of whatever it does.
        let _ = tokio::time::timeout(Duration::from_micros(500 * step), place.source().ensure()).await;
        let half = place.read(&place.ca_secret()).await.filter(|_| step % 2 == 0);
        halves += usize::from(place.stored().await.is_none());
        let completed = place.source().ensure().await.unwrap();
        assert_eq!(place.stored().await.as_ref(), Some(&completed));
        if let Some(half) = half {
            assert_eq!(completed.ca_pem.as_bytes(), half.data.unwrap()["ca.crt"].0, "the CA that was there is kept");
        }
    }
    assert!(halves > 0, "no start was interrupted");
}

#[tokio::test]
async fn names_that_change_get_a_new_certificate_under_the_same_ca() {
    let place = Place::new().await;
    let made = place.source().ensure().await.unwrap();
    let mut moved = place.source();
    moved.dns_names.push("other.elsewhere.svc".to_owned());
    let renewed = moved.ensure().await.unwrap();
    assert_eq!(renewed.ca_pem, made.ca_pem);
    assert_ne!(renewed.cert_pem, made.cert_pem);
    // It still names what was asked for before, so nothing is written back and forth.
    assert_eq!(place.source().ensure().await.unwrap(), renewed);
}

#[tokio::test]
async fn a_refused_request_names_the_secret_and_shows_no_key() {
    let place = Place::new().await;
    let mut source = place.source();
    let made = source.ensure().await.unwrap();
    assert!(!format!("{made:?} {source:?}").contains("PRIVATE"));
    source.client = place.cluster.client_as("nobody", &[]);
    let error = source.ensure().await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read Secret {}/{}: ", place.name, place.ca_secret())), "{error}");
    assert!(error.contains("forbidden") && error.ends_with("; compare the roles with 'generate rbac'"), "{error}");
}

#[tokio::test]
async fn a_secret_that_cannot_be_repaired_is_named_with_the_fix() {
    let place = Place::new().await;
    place.source().ensure().await.unwrap();
    place.overwrite(&place.secret(), &[("tls.key", "")]).await;
    let secrets: Api<Secret> = Api::namespaced(place.admin.clone(), &place.name);
    let locked = Patch::Merge(json!({ "immutable": true }));
    secrets.patch(&place.secret(), &PatchParams::default(), &locked).await.unwrap();
    let error = place.source().ensure().await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot update Secret {}/{}: ", place.name, place.secret())), "{error}");
    assert!(error.contains("immutable") && error.ends_with("; delete this Secret, and it is created again"), "{error}");
    assert!(!error.contains("PRIVATE"), "{error}");

    place.delete(&place.secret()).await;
    place.source().ensure().await.unwrap();
}
