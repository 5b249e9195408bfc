//! A CA is replaced while the API server calls.

use portcullis::certificates::ProvidedBy;
use portcullis_pki::Ca;
use portcullis_testing::wait_until;

use super::fixture::{DAY, Place, Serving, ca, leaf};
use super::load::Load;
use crate::PATIENCE;

async fn served(place: &Place, serving: &Serving, ca: &Ca) {
    let accepted = || async { place.accepts(serving, ca.cert_pem()).await.then_some(()) };
    wait_until("the new pair to be served", PATIENCE, accepted).await;
}

async fn start(old: &Ca) -> (Place, Serving, Load) {
    let place = Place::new(ProvidedBy::User).await;
    place.put_pair(&place.pair(old), old.cert_pem()).await;
    let serving = place.serve().await;
    place.publish(serving.address.port(), old.cert_pem()).await;
    place.in_force().await;
    let load = Load::start(&place.admin, &place.name);
    load.go_on(20).await;
    (place, serving, load)
}

// D5: the Secret first, or the bundle first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_ca_costs_no_call_whichever_comes_first() {
    for secret_first in [true, false] {
        let (old, new) = (ca("old"), ca("new"));
        let (place, serving, load) = start(&old).await;
        let port = serving.address.port();
        let both = format!("{}{}", old.cert_pem(), new.cert_pem());
        if secret_first {
            place.put_pair(&place.pair(&new), new.cert_pem()).await;
            load.go_on(60).await;
            assert!(place.accepts(&serving, old.cert_pem()).await, "served before callers trust it");
            // One of two entries is not enough.
            place.publish_each(port, &[("one", Some(&both)), ("two", Some(old.cert_pem()))]).await;
            load.go_on(60).await;
            assert!(place.accepts(&serving, old.cert_pem()).await, "served before all callers trust it");
            place.publish(port, &both).await;
        } else {
            place.publish(port, &both).await;
            load.go_on(60).await;
            place.put_pair(&place.pair(&new), new.cert_pem()).await;
        }
        served(&place, &serving, &new).await;
        load.go_on(20).await;
        place.publish(port, new.cert_pem()).await;
        load.go_on(60).await;
        assert!(load.end().await > 150);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_without_the_old_ca_switches_to_the_new_pair_at_once() {
    let (old, new) = (ca("old"), ca("new"));
    let (place, serving, load) = start(&old).await;
    load.end().await;
    place.put_pair(&place.pair(&new), new.cert_pem()).await;
    place.publish(serving.address.port(), new.cert_pem()).await;
    served(&place, &serving, &new).await;
    place.in_force().await;
}

// A missing CRD causes no calls; a renewal that waited for it would wait until the old pair has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_installed_does_not_keep_a_new_pair_waiting() {
    let (old, new) = (ca("old"), ca("new"));
    let mut place = Place::new(ProvidedBy::User).await;
    place.crds.push("nones.absent.example".to_owned());
    place.put_pair(&place.pair(&old), old.cert_pem()).await;
    let serving = place.serve().await;
    place.publish(serving.address.port(), &format!("{}{}", old.cert_pem(), new.cert_pem())).await;
    place.put_pair(&place.pair(&new), new.cert_pem()).await;
    served(&place, &serving, &new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_new_pair_is_served_once_the_old_one_expires() {
    let (old, new) = (ca("old"), ca("new"));
    let place = Place::new(ProvidedBy::User).await;
    let lives = jiff::SignedDuration::from_secs(12);
    let ends = jiff::Timestamp::now() + lives;
    let short = leaf(&old, &place.server_name(), -DAY, lives);
    place.put_pair(&short, old.cert_pem()).await;
    let serving = place.serve().await;
    place.publish(serving.address.port(), old.cert_pem()).await;
    // Before that callers do not trust the old one either, and the new one need not wait.
    tokio::time::timeout(PATIENCE, serving.bundle.wait_until_published(&place.configurations(), |_| {})).await.unwrap();
    place.put_pair(&place.pair(&new), new.cert_pem()).await;
    served(&place, &serving, &new).await;
    // A certificate's times are in whole seconds.
    let left = ends.duration_since(jiff::Timestamp::now());
    assert!(left < jiff::SignedDuration::from_secs(1), "the old one would have lived for another {left:#}");
}
