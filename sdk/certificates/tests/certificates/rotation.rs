//! Rotations as their source sees them; under load, with real processes, they are in another test.

use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use portcullis::certificates::{Automatic, Bundle, Phase, ServingCertificate, TimeOfDay};
use portcullis_testing::wait_until;
use tokio_util::sync::CancellationToken;

use crate::fixture::{PATIENCE, Place};

async fn phase(source: &Automatic) -> Phase {
    source.stored().await.unwrap().authorities.unwrap().phase()
}

/// A replica: the source, and what it publishes.
async fn replica(place: &Place, source: Automatic, stop: &CancellationToken) -> ServingCertificate {
    let material = source.ensure().await.unwrap();
    let tls = ArcSwap::from_pointee(material.tls_config(&source.provider).unwrap());
    let bundle: Bundle = source.bundle(&place.name, &material);
    let (made, stop, client) = (material.clone(), stop.clone(), source.client.clone());
    tokio::spawn(async move {
        let configurations = source.configurations.clone();
        tokio::join!(bundle.maintain(&client, &configurations, &stop), source.maintain(material, &tls, &bundle, &stop))
    });
    made
}

async fn rotated(place: &Place, source: &Automatic, before: &ServingCertificate) -> ServingCertificate {
    let look = || async {
        let ended =
            |stored: &ServingCertificate| stored.ca_pem != before.ca_pem && stored.ca_pem.matches("BEGIN").count() == 1;
        let stored = place.stored().await.filter(ended)?;
        let published = place.bundles().await == [("a".to_owned(), Some(stored.ca_pem.clone()))];
        (published && phase(source).await == Phase::Steady).then_some(stored)
    };
    wait_until("the end of the rotation", PATIENCE, look).await
}

// Issue 18 of the book's list: a rotator that stops after its first rotation.
#[tokio::test]
async fn one_rotation_follows_another() {
    let (place, stop) = (Place::new().await, CancellationToken::new());
    place.install(&["a"]).await;
    let mut before = replica(&place, place.quick_source(), &stop).await;
    for _ in 0..2 {
        place.source().rotate().await.unwrap();
        let after = rotated(&place, &place.source(), &before).await;
        assert_ne!(after.cert_pem, before.cert_pem);
        before = after;
    }
    stop.cancel();
}

// A CA comes to its last year: every replica sees it, and one rotation is what comes of it.
#[tokio::test]
async fn a_ca_is_rotated_before_it_ends_and_once_for_all_replicas() {
    let (place, stop) = (Place::new().await, CancellationToken::new());
    place.install(&["a"]).await;
    let made = place.source().ensure().await.unwrap();
    let mark = place.cluster.audit().mark();
    let nine_years = SignedDuration::from_hours(9 * 365 * 24);
    let mut late = place.quick_source();
    // The leaf has long expired then, so it is issued again first.
    late.time_of_day = TimeOfDay::with_offset(nine_years);
    // Long enough for each to go over: one that does not would have the old CA trusted again.
    late.timing.drain = Duration::from_secs(3);
    for _ in 0..3 {
        replica(&place, late.clone(), &stop).await;
    }
    let after = rotated(&place, &late, &made).await;
    stop.cancel();
    assert_eq!(late.ensure().await.unwrap(), after);
    let audit = place.cluster.audit().writes_by(&place.user.name, mark).await;
    let done = audit.iter().filter(|write| write.resource == "secrets" && write.code < 300);
    let (authorities, pairs): (Vec<_>, Vec<_>) = done.partition(|write| write.name.ends_with("-ca"));
    // The next CA, its promotion, the end of the one before; a second rotation would be as many once more. Where the
    // machine stalls, a replica that goes over late has the old CA trusted for longer.
    assert!((3..6).contains(&authorities.len()), "{audit:#?}");
    // A leaf, the bundle of both, a leaf under the new one, its bundle alone. A replica that has read one Secret before
    // and the other after such a write may write the repair in its next round.
    assert!((4..=10).contains(&pairs.len()), "{audit:#?}");
}

// A replica that was suspended during a rotation resumes: it does not put its old bundle back.
#[tokio::test]
async fn a_replica_that_lags_does_not_undo_the_others_bundle() {
    let (place, stop) = (Place::new().await, CancellationToken::new());
    place.install(&["a"]).await;
    let before = replica(&place, place.quick_source(), &stop).await;
    place.wait_for_bundles("the CA", &[("a", Some(&before.ca_pem))]).await;
    let mark = place.cluster.audit().mark();
    // They publish what they know, and get no events; one does not get the Secret, either.
    let blind = place.blind_user().await;
    for asked in [&place.user, &blind] {
        let mut sleeper = place.quick_source();
        sleeper.client = asked.client.clone();
        let (bundle, configurations) = (sleeper.bundle(&place.name, &before), sleeper.configurations.clone());
        let (client, stopped) = (sleeper.client, stop.clone());
        tokio::spawn(async move { bundle.maintain(&client, &configurations, &stopped).await });
    }
    place.source().rotate().await.unwrap();
    rotated(&place, &place.source(), &before).await;
    stop.cancel();
    let audit = place.cluster.audit().writes_by(&place.user.name, mark).await;
    let bundles = audit.iter().filter(|write| write.resource.starts_with("validating") && write.code == 200).count();
    // Both, and then the new one. Each sleeper that put its own back would have the others write again.
    assert!((2..=3).contains(&bundles), "{audit:#?}");
    assert_eq!(place.cluster.audit().writes_by(&blind.name, mark).await.len(), 0);
}

// D3: certificates persist across reinstalls of the operator.
#[tokio::test]
async fn a_reinstalled_operator_serves_under_the_trusted_ca() {
    let (place, stop) = (Place::new().await, CancellationToken::new());
    place.install(&["a"]).await;
    let before = replica(&place, place.quick_source(), &stop).await;
    place.wait_for_bundles("the CA", &[("a", Some(&before.ca_pem))]).await;
    stop.cancel();
    for name in [place.secret(), place.ca_secret()] {
        let secret = place.read(&name).await.unwrap();
        assert!(secret.owner_references().is_empty() && secret.finalizers().is_empty(), "{name}");
    }
    // Everything that is generated goes, and comes again.
    place.configuration_api().delete(&place.configuration(), &DeleteParams::default()).await.unwrap();
    place.install(&["a"]).await;
    let stop = CancellationToken::new();
    assert_eq!(replica(&place, place.quick_source(), &stop).await, before);
    place.wait_for_bundles("the CA again", &[("a", Some(&before.ca_pem))]).await;
    stop.cancel();
}

// Both Secrets are gone while a replica serves, and another one starts before that one has seen it: what is published
// says which CA must stay trusted.
#[tokio::test]
async fn a_new_replica_keeps_the_published_ca_trusted() {
    let (place, stop) = (Place::new().await, CancellationToken::new());
    place.install(&["a"]).await;
    let before = replica(&place, place.quick_source(), &stop).await;
    place.wait_for_bundles("the CA", &[("a", Some(&before.ca_pem))]).await;
    stop.cancel();
    place.delete(&place.secret()).await;
    place.delete(&place.ca_secret()).await;
    let fresh = place.quick_source().ensure().await.unwrap();
    assert!(fresh.ca_pem != before.ca_pem && fresh.ca_pem.contains(before.ca_pem.trim()), "both are to be trusted");
    assert_eq!(phase(&place.source()).await, Phase::Draining);
}

// The same with another valid one instead: other replicas go on serving under it.
#[tokio::test]
async fn a_new_replica_keeps_the_replaced_ca_trusted() {
    for case in ["a foreign CA", "the next CA", "the CA after it"] {
        let (place, stop) = (Place::new().await, CancellationToken::new());
        place.install(&["a"]).await;
        let before = replica(&place, place.quick_source(), &stop).await;
        place.wait_for_bundles("the CA", &[("a", Some(&before.ca_pem))]).await;
        stop.cancel();
        let foreign = Automatic::new(
            place.admin.clone(),
            &*place.name,
            "other",
            vec![place.server_name()],
            place.source().provider,
        );
        foreign.ensure().await.unwrap();
        let value =
            |secret: &Secret, key: &str| String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap();
        let ca = place.ca_secret();
        let other = place.read("other-ca").await.unwrap();
        let (crt, key) = (value(&other, "ca.crt"), value(&other, "ca.key"));
        match case {
            "a foreign CA" | "the CA after it" => place.overwrite(&ca, &[("ca.crt", &crt), ("ca.key", &key)]).await,
            _ => place.overwrite(&ca, &[("ca.crt", "damaged"), ("next.crt", &crt), ("next.key", &key)]).await,
        }
        if case == "the CA after it" {
            place.overwrite(&place.secret(), &[("tls.key", "damaged"), ("ca.crt", &crt)]).await;
        }
        let fresh = place.quick_source().ensure().await.unwrap();
        assert!(fresh.ca_pem.contains(before.ca_pem.trim()), "{case}: who serves under the CA is cut off");
        assert_eq!(phase(&place.source()).await, Phase::Draining, "{case}");
    }
}

// A tool that prunes what it does not know: each CA that is made and lost has issued nothing.
#[tokio::test]
async fn the_served_ca_stays_trusted_while_the_stored_one_vanishes() {
    let place = Place::new().await;
    let before = place.source().ensure().await.unwrap();
    for loss in 1..=6 {
        place.delete(&place.ca_secret()).await;
        let now = place.source().ensure().await.unwrap();
        assert_eq!(now.cert_pem, before.cert_pem, "loss {loss}");
        assert!(now.ca_pem.contains(before.ca_pem.trim()), "loss {loss}");
    }
}

// A replica that has not seen the new leaf yet is called as before, while the old CA is still trusted.
#[tokio::test]
async fn the_old_ca_stays_trusted_while_it_drains() {
    let (place, stop) = (Place::new().await, CancellationToken::new());
    place.install(&["a"]).await;
    let mut source = place.quick_source();
    source.timing.drain = Duration::from_hours(1);
    let before = replica(&place, source, &stop).await;
    place.source().rotate().await.unwrap();
    let issued = || async { place.stored().await.filter(|stored| stored.cert_pem != before.cert_pem) };
    let after = wait_until("the new leaf", PATIENCE, issued).await;
    assert!(after.ca_pem.contains(before.ca_pem.trim()), "both are to be trusted");
    // The rounds that make this good would also go on with the rotation.
    for _ in 0..2 {
        place.overwrite(&place.secret(), &[("ca.crt", "damaged")]).await;
        let repaired = || async { place.stored().await.filter(|stored| stored.ca_pem != "damaged") };
        assert_eq!(wait_until("the bundle", PATIENCE, repaired).await, after);
    }
    place.wait_for_bundles("both", &[("a", Some(&after.ca_pem))]).await;
    assert_eq!(phase(&place.source()).await, Phase::Draining);
    stop.cancel();
}

// Clocks 5 minutes off on either side agree about every certificate that is made.
#[tokio::test]
async fn clocks_that_are_minutes_off_cause_no_write() {
    let place = Place::new().await;
    let skewed = |minutes| {
        let mut source = place.source();
        source.time_of_day = TimeOfDay::with_offset(SignedDuration::from_mins(minutes));
        source
    };
    let made = skewed(5).ensure().await.unwrap();
    let mark = place.cluster.audit().mark();
    for minutes in [-5, 0, 5, -55] {
        assert_eq!(skewed(minutes).ensure().await.unwrap(), made, "{minutes}");
    }
    assert_eq!(place.writes(mark).await, 0);
}
