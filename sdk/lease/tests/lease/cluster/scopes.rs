//! A cluster-wide operator beside namespace-restricted ones, as in the guide. MISSION D7.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, Stopwatch, wait_until};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::changes::Changes;
use crate::{LeaseElection, LeaseHandle, Ownership, ScopeTiming, Scopes};

use super::clock::TestClock;
use super::{
    Candidate, DEADLINE, LEASE, OPERATOR, Observer, hand_over, patient, quick_scope_timing, scope_timing, take_back,
    timing,
};

struct ClusterWide {
    scopes: Scopes,
    clock: TestClock,
    task: JoinHandle<()>,
}

impl Drop for ClusterWide {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn cluster_wide(cluster: &ControlPlane, skew: i64) -> ClusterWide {
    cluster_wide_timed(cluster, skew, scope_timing()).await
}

async fn cluster_wide_timed(cluster: &ControlPlane, skew: i64, timing: ScopeTiming) -> ClusterWide {
    let clock = TestClock::skewed(skew);
    let (client, timed_by) = (cluster.admin(), Arc::new(clock.clone()));
    let (scopes, driver) = Scopes::with_clock(client, OPERATOR, LEASE, timing, timed_by).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    wait_until("the view", DEADLINE, || async { scopes.unknown().is_none().then_some(()) }).await;
    ClusterWide { scopes, clock, task }
}

/// Settles a little longer than the cluster-wide operator's knowledge counts.
fn restricted(namespace: &str, identity: &str) -> LeaseElection {
    let timing = timing().settle(Duration::from_millis(3600));
    LeaseElection::scope(namespace, LEASE, identity).unwrap().timing(timing)
}

async fn told(changes: &mut Changes, namespace: &str) {
    let wanted = Some(namespace.to_owned());
    let told = async { while changes.next().await.unwrap() != wanted {} };
    tokio::time::timeout(DEADLINE, told).await.unwrap_or_else(|_| panic!("no change of {namespace} was reported"));
}

fn watch(wide: &ClusterWide, others: &[&Candidate], namespace: &str) -> Observer {
    let (scopes, namespace) = (wide.scopes.clone(), namespace.to_owned());
    let handles: Vec<_> = others.iter().map(|other| other.handle.clone()).collect();
    Observer::watch(move || {
        let ours = scopes.owns(&namespace).may_write().then_some(0);
        handles.iter().map(LeaseHandle::held).chain([ours]).collect()
    })
}

/// Races 1, 4, 5 and 6.
#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_wide_operator_resumes_after_duration_and_grace() {
    let walls = [(0, 0), (300, -300), (-300, 300)];
    join_all(walls.map(|(skew, wide_skew)| steps_back_and_resumes(skew, wide_skew))).await;
}

/// The walls of the restricted and the cluster-wide operator are off by these seconds.
async fn steps_back_and_resumes(skew: i64, wide_skew: i64) {
    let cluster = ControlPlane::shared().await;
    let (team, other) = (cluster.namespace("team").await, cluster.namespace("other").await);
    hand_over(cluster, &team).await;
    let wide = cluster_wide(cluster, wide_skew).await;
    let ours = || async { wide.scopes.owns(&team).may_write().then_some(()) };
    wait_until("it to be ours before there is a lease", DEADLINE, ours).await;
    let mut changes = wide.scopes.changes();

    let begun = Stopwatch::start();
    let tenant = Candidate::start(cluster.admin(), restricted(&team, "tenant"), skew);
    let observer = watch(&wide, &[&tenant], &team);
    wait_until("the step back", DEADLINE, || async { (!wide.scopes.owns(&team).must_check()).then_some(()) }).await;
    while changes.next().now_or_never().is_some() {}
    tenant.holds().await;
    assert!(tenant.handle.owns(&team).may_write() && !tenant.handle.owns(&other).must_check());
    assert!(wide.scopes.owns(&other).must_check(), "other namespaces stay with it");

    let crashed = Stopwatch::start();
    tenant.crash().await;
    told(&mut changes, &team).await;
    let (gap, lost) = (crashed.started().elapsed(), crashed.lost());
    eprintln!("walls {skew:+} s and {wide_skew:+} s, crash of the restricted operator: no owner for {gap:?}");
    let expected = Duration::from_secs(3 + 1);
    // The time counts from the last renewal, and from an earlier one where the machine stalls.
    let earlier = timing().renew() + Duration::from_millis(200) + begun.lost();
    assert!(gap > expected.saturating_sub(earlier), "{gap:?}, stalls {:?}", begun.lost());
    assert!(gap < expected + Duration::from_secs(2) + 2 * lost, "{gap:?}, stalls {lost:?}");
    wait_until("it to be ours again", DEADLINE, ours).await;
    assert_eq!(observer.most(), 1);
}

/// Race 7.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_gives_the_cluster_wide_operator_no_turn() {
    let cluster = ControlPlane::shared().await;
    let team = cluster.namespace("rolling").await;
    hand_over(cluster, &team).await;
    let wide = cluster_wide(cluster, 0).await;
    let election = || restricted(&team, "tenant").timing(patient().settle(Duration::from_millis(3600)));
    let old = Candidate::start(cluster.admin(), election(), 0);
    old.holds().await;
    wait_until("the step back", DEADLINE, || async { (!wide.scopes.owns(&team).must_check()).then_some(()) }).await;
    let mut changes = wide.scopes.changes();
    let new = Candidate::start(cluster.admin(), election(), 0);
    let observer = watch(&wide, &[&old, &new], &team);
    old.end().await.unwrap();
    new.holds().await;
    wait_until("the observer to see one that acts", DEADLINE, || async { (observer.seen() > 0).then_some(()) }).await;
    assert_eq!(observer.most(), 1);
    while let Some(change) = changes.next().now_or_never() {
        assert_ne!(change, Some(Some(team.clone())), "it changed hands in between");
    }
}

/// The other implementation: its own identity, no transitions, deleted at its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_operator_is_left_alone_after_deleting_its_lease() {
    let cluster = ControlPlane::shared().await;
    let wide = cluster_wide(cluster, 0).await;
    let mut changes = wide.scopes.changes();
    {
        let team = cluster.namespace("dynamo").await;
        hand_over(cluster, &team).await;
        let known = || async { wide.scopes.owns(&team).may_write().then_some(()) };
        wait_until("the view to know that there is no holder", DEADLINE, known).await;
        let leases: Api<Lease> = Api::namespaced(cluster.admin(), &team);
        // Its wall is an hour late: its lease has expired before it is made, for those who believe it.
        let lease = json!({
            "metadata": { "name": LEASE },
            "spec": {
                "holderIdentity": "namespace-restricted-operator-1.0.0", "leaseDurationSeconds": 4,
                "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z",
            },
        });
        leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
        wait_until("the step back", DEADLINE, || async { (!wide.scopes.owns(&team).must_check()).then_some(()) }).await;
        while changes.next().now_or_never().is_some() {}
        let renewal = json!({ "spec": { "renewTime": "2020-01-01T00:00:10.000000Z" } });
        leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(&renewal)).await.unwrap();
        let renewed = Instant::now();
        leases.delete(LEASE, &DeleteParams::default()).await.unwrap();
        told(&mut changes, &team).await;
        let gap = renewed.elapsed();
        assert!(wide.scopes.owns(&team).must_check());
        assert!(gap > Duration::from_millis(4500), "it resumed {gap:?} after the last renewal, not after 4 s and 1 s");
    }
}

/// Race 8.
#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_lease_takes_no_namespace() {
    let cluster = ControlPlane::shared().await;
    let team = cluster.namespace("stranger").await;
    let wide = cluster_wide(cluster, 0).await;
    let honest = Candidate::start(cluster.admin(), restricted(&team, "honest"), 0);
    let said = wait_until("what is missing", DEADLINE, || async { honest.handle.health().last_error }).await;
    assert!(said.contains(&format!("there is no ValidatingAdmissionPolicy scope.{team}")), "{said}");
    honest.end().await.unwrap();
    let timing = timing().settle(Duration::from_millis(100));
    // A scope without its proof.
    let election = LeaseElection::leader_election(&team, LEASE, "stranger").unwrap().timing(timing);
    let stranger = Candidate::start(cluster.admin(), election, 0);
    stranger.holds().await;
    assert!(wide.scopes.owns(&team).must_check() && wide.scopes.owns(&team).may_write());
    hand_over(cluster, &team).await;
    wait_until("the step back", DEADLINE, || async { (!wide.scopes.owns(&team).must_check()).then_some(()) }).await;
    let taken = Instant::now();
    take_back(cluster, &team).await;
    wait_until("it to check again", DEADLINE, || async { wide.scopes.owns(&team).must_check().then_some(()) }).await;
    wait_until("it to write again", DEADLINE, || async { wide.scopes.owns(&team).may_write().then_some(()) }).await;
    // Three, one and three: who held may have known no sooner.
    assert!(taken.elapsed() >= Duration::from_secs(7), "{:?}", taken.elapsed());
    assert!(stranger.handle.held().is_some(), "it has renewed all the while");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_cluster_wide_operator_writes_on_no_stale_view() {
    let cluster = ControlPlane::shared().await;
    let team = cluster.namespace("stale").await;
    hand_over(cluster, &team).await;
    // Its machine: one thread, which can be kept from doing anything.
    let machine = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (hand, taken) = std::sync::mpsc::channel();
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let cluster = ControlPlane::shared().await;
                hand.send(cluster_wide(cluster, 0).await).unwrap();
                stopped.await.ok();
            });
        });
        (taken.recv().unwrap(), handle, stop)
    });
    let (wide, runtime, _stop) = tokio::task::spawn_blocking(|| machine.join().unwrap()).await.unwrap();
    let (go_on, halted) = std::sync::mpsc::channel::<()>();
    wide.clock.stop();
    runtime.spawn(async move { halted.recv().ok() });
    let tenant = Candidate::start(cluster.admin(), restricted(&team, "tenant"), 0);
    tenant.holds().await;
    let resumed = Stopwatch::start();
    wide.clock.go_on();
    go_on.send(()).unwrap();
    wait_until("the step back", DEADLINE, || async { (!wide.scopes.owns(&team).may_write()).then_some(()) }).await;
    let window = resumed.elapsed();
    eprintln!("cluster-wide machine stopped: two for {window:?}");
    assert!(window <= scope_timing().confirm() + Duration::from_millis(500), "{window:?}");
    wait_until("it to know whose", DEADLINE, || async { (!wide.scopes.owns(&team).must_check()).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_driver_nothing_is_known_and_streams_end() {
    let cluster = ControlPlane::shared().await;
    let wide = cluster_wide(cluster, 0).await;
    let changes = wide.scopes.changes();
    wide.task.abort();
    tokio::time::timeout(DEADLINE, changes.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(wide.scopes.owns("anything"), Ownership::Unknown);
    assert!(wide.scopes.unknown().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_ends_when_the_handover_ends_or_is_replaced() {
    let cluster = ControlPlane::shared().await;
    let team = cluster.namespace("handed-over").await;
    hand_over(cluster, &team).await;
    let wide = cluster_wide_timed(cluster, 0, quick_scope_timing()).await;
    let election = restricted(&team, "tenant").timing(timing().settle(Duration::from_millis(1200)));
    let tenant = Candidate::start(cluster.admin(), election, 0);
    let observer = watch(&wide, &[&tenant], &team);
    let first = tenant.holds().await;
    take_back(cluster, &team).await;
    wait_until("it to stop", DEADLINE, || async { tenant.handle.held().is_none().then_some(()) }).await;
    assert_eq!(tenant.handle.health().ended.as_deref(), Some("NotHandedOver"));
    wait_until("it to be ours", DEADLINE, || async { wide.scopes.owns(&team).may_write().then_some(()) }).await;

    hand_over(cluster, &team).await;
    let second = tenant.holds().await;
    assert!(second > first);
    // Another one of the same name, between two looks.
    take_back(cluster, &team).await;
    hand_over(cluster, &team).await;
    tokio::time::timeout(DEADLINE, tenant.handle.lost(second)).await.unwrap();
    assert!(tenant.holds().await > second);
    assert_eq!(observer.most(), 1);
}
