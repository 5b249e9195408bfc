//! Replicas of one operator.

use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_testing::Stopwatch;

use super::faults::at_most;
use super::installation::{Installation, checked_by};
use super::trace::windows;
use super::turn::Turn;
use super::{DURATION, LAPSE};

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_acts_and_both_validate() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let begun = Stopwatch::start();
    let platform = Installation::new(cluster, "platform", None, &["--acts-in", "default"]).await;
    let first = platform.start(&["--identity", "pod-1"]);
    platform.install(&first).await;
    first.acts("default").await;
    let second = platform.start(&["--identity", "pod-2"]);
    platform.install(&second).await;
    checked_by(&cluster.admin(), "default", &["platform"]).await;
    assert!(second.acted("default").is_empty() || begun.lost() > LAPSE, "two replicas act");
    assert!(!second.said("validate create").is_empty(), "the follower validates");

    // Paused past its lease, it stops when it goes on; the other has taken over.
    let begun = Stopwatch::start();
    first.signal("STOP").await;
    second.acts("default").await;
    first.signal("CONT").await;
    let row = |what: &str, begun: &Stopwatch| {
        let (first, second) = (first.acted("default"), second.acted("default"));
        let (seen, lost) = (windows(&[first, second], begun.started()), begun.lost());
        eprintln!("leader {what}: two act {:?}, nobody {:?}", seen.two, seen.none);
        assert!(seen.two <= Duration::from_millis(100) + lost, "{seen:?}");
        assert!(seen.none <= at_most(DURATION + Duration::from_millis(400), begun), "{seen:?}");
    };
    row("paused past its lease", &begun);

    let begun = Stopwatch::start();
    second.signal("KILL").await;
    first.acts("default").await;
    row("killed", &begun);
    let led = |process: &super::process::Process| {
        let lines = process.said("leading: this replica");
        lines.iter().map(|line| line["epoch"].as_str().unwrap().parse::<u32>().unwrap()).collect::<Vec<_>>()
    };
    // Every epoch has one leader. A Lease that lapses on a busy machine adds an epoch.
    let (ours, theirs) = (led(&first), led(&second));
    let distinct: BTreeSet<_> = ours.iter().chain(&theirs).collect();
    assert_eq!(distinct.len(), ours.len() + theirs.len(), "{ours:?} {theirs:?}");
    assert!(ours[0] == 1 && theirs[0] > 1 && ours.last() > theirs.last(), "{ours:?} {theirs:?}");
    assert!(!first.said("not leading any more").is_empty());
    platform.uninstall().await;
}
