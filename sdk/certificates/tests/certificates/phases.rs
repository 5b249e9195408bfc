//! Damage in the middle of a rotation.

use std::time::Duration;

use futures::future::join_all;
use portcullis::certificates::Phase;
use portcullis_testing::wait_until;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::damage::{Damage, call, damages, serve_from};
use crate::fixture::{PATIENCE, Place};

/// The first of the damages are to the Secret with the pair.
const PAIR: usize = 15;

async fn survives(what: &str, phase: Phase, damages: [Damage; 2]) {
    let place = Place::new().await;
    let mut source = place.quick_source();
    source.timing.settle = Duration::from_millis(400);
    source.timing.drain = Duration::from_millis(1500);
    let serving = serve_from(&place, source).await;
    place.source().rotate().await.unwrap();
    let reached = || async {
        let authorities = place.source().stored().await.unwrap().authorities.ok()?;
        (authorities.phase() == phase).then_some(())
    };
    wait_until("the phase", PATIENCE, reached).await;
    for damage in damages {
        damage(&place).await;
    }
    let (place, serving) = (&place, &serving);
    wait_until(&format!("the end of the rotation after {what}"), PATIENCE, || async move {
        call(place, serving).await.unwrap_or_else(|error| panic!("{what}: a call failed meanwhile: {error}"));
        let (state, stored) = (place.source().stored().await.unwrap(), place.stored().await?);
        let steady = state.authorities.is_ok_and(|authorities| authorities.phase() == Phase::Steady);
        let leaf = CertificateDer::from_pem_slice(stored.cert_pem.as_bytes()).ok()?;
        let served = serving.leaf(place).await.is_some_and(|served| served == leaf.as_ref());
        let published = place.bundles().await == [("a".to_owned(), Some(stored.ca_pem))];
        (steady && state.damage.is_empty() && state.leaf.is_ok() && served && published).then_some(())
    })
    .await;
    serving.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_during_a_rotation_costs_no_call_and_the_rotation_ends() {
    // Damage to the one Secret together with damage to the other, in the one phase or the other.
    let (mut pair, mut ca) = (damages(), Vec::new());
    ca.extend(pair.drain(PAIR..));
    // Some damages are made from what is there.
    pair.retain(|(what, ..)| *what != "no Secret with the pair");
    let cases = pair.iter().cycle().zip(&ca).zip([Phase::Publishing, Phase::Draining].into_iter().cycle());
    let cases: Vec<_> = cases.collect();
    for some in cases.chunks(8) {
        join_all(some.iter().map(|(((one, _, first), (two, _, second)), phase)| async move {
            survives(&format!("{one} and {two} in {phase:?}"), *phase, [*first, *second]).await;
        }))
        .await;
    }
}
