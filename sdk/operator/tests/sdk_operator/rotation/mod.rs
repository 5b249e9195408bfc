//! A CA is rotated from start to end while people work: two replicas as two processes, real API server calls to both.
//! Each test has a control plane of its own, and they run side by side.

mod caller;
mod fixture;
mod forwarder;
mod load;
mod replica;
mod slow;

use std::time::Duration;

use tokio::time::Instant;

use crate::PATIENCE;
use crate::scopes::proxy;

use fixture::{Installation, Seen, Times};
use load::QUARTER;

/// Times that are hours in production, in seconds. They cannot be much less, and so a rotation takes seven: an API
/// server takes up a new bundle within a second or two, later on a busy machine, and replicas the new pair.
const QUICK: Times = Times { settle: Duration::from_secs(4), drain: Duration::from_secs(2) };

async fn a_whole_rotation(what: &str, skews: [i64; 2]) {
    let installation = Installation::new(skews, QUICK).await;
    let (load, late) = installation.load(QUARTER).await;
    let begun = Instant::now();
    let before = installation.rotate().await;
    let after = installation.until("the end", |seen| seen.leaf != before.leaf && seen.at_rest()).await;
    assert_ne!(after.leaf, before.leaf);
    installation.shows_rest().await;
    installation.judge(what, load, &[late], begun).await;
}

// D3: no call is lost by a rotation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ca_is_rotated_under_load_and_no_admission_fails() {
    a_whole_rotation("rotation", [0, 0]).await;
}

// D3: clocks of different machines are never compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ca_rotates_under_clocks_that_are_five_minutes_off() {
    a_whole_rotation("rotation with clocks 5 min ahead and behind", [300, -300]).await;
}

// D3: what is stored says where a rotation stands, so any process can go on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_a_replica_during_a_rotation_costs_no_admission() {
    /// Boundaries that lie within one rotation, so far apart that a replica is mostly back before the next.
    type Boundary = (&'static str, fn(&Seen, &Seen) -> bool);
    const ROTATIONS: [&[Boundary]; 3] = [
        &[
            ("the next CA is stored", |_, now| now.has("next.crt")),
            ("the next CA is the one that issues", |_, now| now.has("previous.crt")),
            ("the old CA is not stored any more", |before, now| now.leaf != before.leaf && !now.has("previous.crt")),
        ],
        &[
            ("the bundle holds both", |_, now| now.to_publish == 2),
            ("the leaf is issued", |before, now| now.leaf != before.leaf),
            ("the bundle holds one", |before, now| now.leaf != before.leaf && now.to_publish == 1),
        ],
        &[
            ("both are published", |_, now| now.published == [2; 3]),
            ("one is published", |before, now| now.leaf != before.leaf && now.published == [1; 3]),
        ],
    ];
    let mut installation = Installation::new([0, 0], QUICK).await;
    let (load, late) = installation.load(QUARTER).await;
    let begun = Instant::now();
    let mut victim = 0;
    for boundaries in ROTATIONS {
        let mut ahead = boundaries.iter();
        let mut rotations = 0;
        while !ahead.as_slice().is_empty() {
            rotations += 1;
            assert!(rotations < 5, "each rotation was over before {}", ahead.as_slice()[0].0);
            let before = installation.rotate().await;
            let ended = |now: &Seen| now.leaf != before.leaf && now.at_rest();
            while let Some((what, reached)) = ahead.as_slice().first() {
                let seen = installation.until(what, |now| reached(&before, now) || ended(now)).await;
                // A busy machine starts a replica so slowly that the next boundary goes by: the next rotation has it,
                // too.
                if !reached(&before, &seen) {
                    break;
                }
                installation.kill(victim, &load).await;
                victim = 1 - victim;
                ahead.next();
            }
            installation.until("the end", ended).await;
        }
    }
    installation.judge("eight kills at boundaries of rotations", load, &[late], begun).await;
}
