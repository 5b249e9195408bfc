//! Two cluster-wide installations of one operator that share a namespace of leader election: one acts, both check.

use std::time::Duration;

use portcullis_testing::{Stopwatch, wait_until};

use super::faults::{Prober, at_most, row};
use super::installation::{Installation, checked_by};
use super::process::Process;
use super::turn::Turn;
use super::{DURATION, LAPSE, PATIENCE};

const WAITS: &str = "not leading: another installation of this operator holds the Lease";

/// Waits until the process shows in its metrics whether another installation holds the Lease.
async fn shows_another(process: &Process, home: &str, expected: u8) {
    let line = format!("portcullis_lease_other_installation{{lease=\"{home}/scopes-leader\"}} {expected}");
    let shown = || async { process.health("/metrics").await.1.contains(&line).then_some(()) };
    wait_until(&line, PATIENCE, shown).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_releases_that_share_a_lease_acts() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let (team, home) = (cluster.namespace("team").await, cluster.namespace("elects").await);
    let arguments = ["--acts-in", &*team, "--ignore-failures", "--leader-election-namespace", &*home];
    let first = Installation::new(cluster, "platform", None, &arguments).await;
    let second = Installation::new(cluster, "twin", None, &arguments).await;
    let client = cluster.admin();
    let old = first.start(&[]);
    first.install(&old).await;
    old.acts(&team).await;

    let (begun, prober) = (Stopwatch::start(), Prober::start(client.clone(), &team));
    let twin = second.start(&[]);
    second.install(&twin).await;
    shows_another(&twin, &home, 1).await;
    let said = || async { twin.said(WAITS).into_iter().next() };
    let said = wait_until("it to say so", PATIENCE, said).await;
    assert_eq!(said["installation"], format!("{}/platform", first.namespace));
    assert!(said["message"].as_str().unwrap().contains("--restrict-to-namespace"), "{said}");
    assert_eq!(twin.health("/readyz").await.0, 200);
    checked_by(&client, &team, &["platform", "twin"]).await;
    let checks = prober.windows().await;
    let actors = [old.acted(&team), twin.acted(&team)];
    row("a second release starts", &actors, &begun, Duration::ZERO, Some(checks));
    assert!(checks.1 <= at_most(Duration::ZERO, &begun), "no operator checked for {checks:?}");
    assert!(actors[1].is_empty() || begun.lost() > LAPSE, "the second wrote");

    let (begun, prober) = (Stopwatch::start(), Prober::start(client.clone(), &team));
    old.signal("KILL").await;
    twin.acts(&team).await;
    checked_by(&client, &team, &["twin"]).await;
    let checks = prober.windows().await;
    row("the first crashes", &[old.acted(&team), twin.acted(&team)], &begun, DURATION, Some(checks));
    assert!(checks.1 <= at_most(Duration::ZERO, &begun), "no operator checked for {checks:?}");
    shows_another(&twin, &home, 0).await;

    // It waits in its turn when it comes back.
    let back = first.start(&[]);
    first.install(&back).await;
    shows_another(&back, &home, 1).await;
    checked_by(&client, &team, &["platform", "twin"]).await;
    first.uninstall().await;
    second.uninstall().await;
}
