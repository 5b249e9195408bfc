//! Leader election among drivers. MISSION D7.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use portcullis_testing::{ControlPlane, Stopwatch, wait_for_object, wait_until};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::elector::End;
use crate::record::Record;
use crate::{LeaseElection, LeaseHandle, Timing};

use super::{Candidate, DEADLINE, LEASE, Observer, patient, timing};

fn election(namespace: &str, identity: &str) -> LeaseElection {
    LeaseElection::leader_election(namespace, LEASE, identity).unwrap().timing(timing())
}

fn watch(candidates: &[&Candidate]) -> Observer {
    let handles: Vec<_> = candidates.iter().map(|candidate| candidate.handle.clone()).collect();
    Observer::watch(move || handles.iter().map(LeaseHandle::held).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_holds_within_the_duration_after_a_crash() {
    let cluster = ControlPlane::shared().await;
    for skew in [300, -300] {
        let namespace = cluster.namespace("crash").await;
        let begun = Stopwatch::start();
        let first = Candidate::start(cluster.admin(), election(&namespace, "first"), skew);
        assert_eq!(first.holds().await, 1);
        let others = [-skew, 0].map(|skew| Candidate::start(cluster.admin(), election(&namespace, "other"), skew));
        let observer = watch(&[&first, &others[0], &others[1]]);
        let lease: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
        wait_for_object(&lease, LEASE, "a renewal", DEADLINE, |lease| {
            let record = Record::from(lease);
            record.renewed > record.acquired
        })
        .await;

        let handle = first.handle.clone();
        let crashed = Stopwatch::start();
        first.crash().await;
        assert_eq!(handle.held(), None, "who does not renew holds nothing");
        let hold = tokio::select! { hold = others[0].holds() => hold, hold = others[1].holds() => hold };
        let (gap, lost) = (crashed.started().elapsed(), crashed.lost());
        eprintln!("wall {skew:+} s, crash of the leader: no leader for {gap:?}");
        // Where the machine stalls, the Lease may have lapsed before the crash, and have been taken once more.
        let once_more = hold > 2 && begun.lost() > timing().renew();
        assert!(hold == 2 || once_more, "{hold:?}");
        // It counts from the last renewal; a look and two requests come on top, and a machine with other things to do.
        let earlier = timing().renew() + Duration::from_millis(200) + begun.lost();
        assert!(gap >= timing().duration().saturating_sub(earlier), "{gap:?}, stalls {:?}", begun.lost());
        let longest = timing().duration() + timing().retry() + Duration::from_secs(3);
        assert!(gap <= longest + 2 * lost, "{gap:?}, stalls {lost:?}");
        assert_eq!(observer.most(), 1);
        for other in others {
            other.end().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_end_hands_over_at_once_in_the_next_epoch() {
    let cluster = ControlPlane::shared().await;
    for end in [End::Release, End::HandOver] {
        let namespace = cluster.namespace("handover").await;
        let election = |identity| election(&namespace, identity).timing(patient());
        let first = Candidate::start(cluster.admin(), election("first").end(end), 0);
        first.holds().await;
        let second = Candidate::start(cluster.admin(), election("second"), 0);
        wait_until("the second to see it", DEADLINE, || async { second.handle.health().holder }).await;
        let observer = watch(&[&first, &second]);
        first.end().await.unwrap();
        // The duration is longer than anything is waited for here.
        assert_eq!(second.holds().await, 2);
        assert!(observer.most() <= 1);

        let lease: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
        second.end().await.unwrap();
        let left = Record::from(&lease.get(LEASE).await.unwrap());
        assert_eq!((left.holder, left.transitions), (None, 2));
    }
}

/// The write comes in, whether its sender waits for the answer or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_being_taken_when_the_end_comes_is_given_back() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("taking").await;
    let (asked, held) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (told, passes, through) = (asked.clone(), held.clone(), cluster.admin());
    let slow = tower::service_fn(move |request: http::Request<Body>| {
        let (told, passes, through) = (told.clone(), passes.clone(), through.clone());
        let answer = tokio::spawn(async move {
            if request.method() == http::Method::POST {
                told.notify_one();
                passes.acquire().await.unwrap().forget();
            }
            through.send(request).await
        });
        async move { answer.await.unwrap() }
    });
    // Ten seconds for a request: whatever else the machine does, the answer is there before.
    let patient = Timing::new(Duration::from_mins(1), Duration::from_secs(40), Duration::from_secs(10)).unwrap();
    let election = election(&namespace, "late").timing(patient);
    let candidate = Candidate::start(kube::Client::new(slow, "default"), election, 0);
    tokio::time::timeout(DEADLINE, asked.notified()).await.unwrap();
    let handle = candidate.handle.clone();
    let end = tokio::spawn(candidate.end());
    wait_until("the handle to hold", DEADLINE, || async { handle.acquired().now_or_never() }).await;
    held.add_permits(1);
    end.await.unwrap().unwrap();
    let lease: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
    let left = wait_until("the write to come in", DEADLINE, || async { lease.get_opt(LEASE).await.unwrap() }).await;
    let left = Record::from(&left);
    assert_eq!((left.holder, left.duration), (None, Some(Duration::from_secs(1))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_finds_out_about_a_stall_at_its_next_renewal() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("pause").await;
    let first = Candidate::start(cluster.admin(), election(&namespace, "first"), 0);
    let hold = first.holds().await;
    let second = Candidate::start(cluster.admin(), election(&namespace, "second"), 0);
    wait_until("the second to see it", DEADLINE, || async { second.handle.health().holder }).await;

    first.clock.stop();
    let later = second.holds().await;
    assert!(later > hold);
    first.clock.go_on();
    let resumed = Stopwatch::start();
    tokio::time::timeout(DEADLINE, first.handle.lost(hold)).await.unwrap();
    let window = resumed.elapsed();
    eprintln!("machine stopped: two for {window:?}");
    assert!(window <= timing().deadline(), "{window:?}");
    let why = wait_until("it to say why", DEADLINE, || async { first.handle.health().ended }).await;
    assert!(["Taken", "Late"].contains(&&*why), "{why}");
    assert_eq!(second.holds().await, later, "the later one goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_labels_on_the_lease_stay_and_do_no_harm() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("labels").await;
    let holder = Candidate::start(cluster.admin(), election(&namespace, "holder").timing(patient()), 0);
    let hold = holder.holds().await;
    let lease: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
    let label = json!({ "metadata": { "labels": { "team": "a" } } });
    for _ in 0..3 {
        let before = lease.patch(LEASE, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
        let before = Record::from(&before).renewed;
        let renewed = |lease: &Lease| Record::from(lease).renewed > before;
        let now = wait_for_object(&lease, LEASE, "a renewal after it", DEADLINE, renewed).await;
        assert_eq!(now.metadata.labels.unwrap()["team"], "a");
    }
    assert_eq!(holder.holds().await, hold);
    assert_eq!(holder.handle.health().last_error, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_is_made_again_in_a_later_epoch() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("deleted").await;
    let holder = Candidate::start(cluster.admin(), election(&namespace, "holder"), 0);
    let hold = holder.holds().await;
    let mut changes = holder.handle.changes();
    let lease: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
    lease.delete(LEASE, &DeleteParams::default()).await.unwrap();
    tokio::time::timeout(DEADLINE, holder.handle.lost(hold)).await.unwrap();
    assert_eq!(changes.next().await, Some(Some(namespace.clone())));
    assert_eq!(holder.holds().await, hold + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_hold_settles_before_one_may_act() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("settle").await;
    let settle = Duration::from_secs(1);
    let slow = election(&namespace, "holder").timing(timing().settle(settle));
    let holder = Candidate::start(cluster.admin(), slow, 0);
    let lease: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
    wait_until("the lease", DEADLINE, || async { lease.get_opt(LEASE).await.unwrap() }).await;
    let seen = Instant::now();
    holder.holds().await;
    assert!(seen.elapsed() > settle / 2, "it acted after {:?}", seen.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steady_holder_writes_one_small_patch_per_renewal() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("steady").await;
    let user = cluster.user_with("holder", &[super::rights::holder(&namespace)]).await;
    let mark = cluster.audit().mark();
    let holder = Candidate::start(user.client.clone(), election(&namespace, "holder"), 0);
    holder.holds().await;
    let lease: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
    let first = Record::from(&lease.get(LEASE).await.unwrap());
    wait_for_object(&lease, LEASE, "three renewals", DEADLINE, |lease| {
        let record = Record::from(lease);
        let versions = [record.version, first.version.clone()].map(|version| version.parse::<u64>().unwrap());
        versions[0] > versions[1] && record.renewed.unwrap().duration_since(first.renewed.unwrap()).as_millis() > 1200
    })
    .await;
    let verbs: Vec<String> =
        cluster.audit().writes_by(&user.name, mark).await.into_iter().map(|event| event.verb).collect();
    assert_eq!(verbs[0], "create");
    assert!(verbs.len() >= 3 && verbs[1..].iter().all(|verb| verb == "patch"), "{verbs:?}");
}

#[test]
fn the_default_is_what_client_go_has() {
    let leader = Timing::LEADER;
    let seconds = [leader.duration(), leader.deadline(), leader.retry()].map(|duration| duration.as_secs());
    assert_eq!(seconds, [15, 10, 2]);
}

/// MISSION D7: installations that share the Lease exclude each other, and the one that waits knows which one leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_knows_which_other_installation_holds() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("shared").await;
    let of = |installation: &str| election(&namespace, "pod").timing(patient()).installation(installation);
    let first = Candidate::start(cluster.admin(), of("a/blue"), 0);
    first.holds().await;
    let twin = Candidate::start(cluster.admin(), of("a/blue"), 0);
    let other = Candidate::start(cluster.admin(), of("b/green"), 0);
    let told =
        wait_until("the other to name the holder", DEADLINE, || async { other.handle.health().other_installation })
            .await;
    assert_eq!(told, "a/blue");
    wait_until("the twin to see it", DEADLINE, || async { twin.handle.health().holder }).await;
    assert_eq!(twin.handle.health().other_installation, None);
    twin.end().await.unwrap();
    first.end().await.unwrap();
    other.holds().await;
    assert_eq!(other.handle.health().other_installation, None);
}
