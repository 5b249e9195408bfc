//! An election that writes further Leases, for operators that look at another name.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portcullis_lease::{LeaseElection, Reason, Record};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::json;

use super::{Candidate, DEADLINE, LEASE, timing};

const FURTHER: &str = "scope-of-others";

/// Each Lease is written once, however often it is named.
fn election(namespace: &str, identity: &str) -> LeaseElection {
    let election = LeaseElection::leader_election(namespace, LEASE, identity).unwrap();
    election.timing(timing()).followers(&[FURTHER, LEASE, FURTHER])
}

async fn record(leases: &Api<Lease>, name: &str) -> Option<Record> {
    leases.get_opt(name).await.unwrap().as_ref().map(Record::from)
}

/// Writes the further Lease for this holder, as an operator of another make does: over whatever is there. It lasts longer
/// than the test.
async fn written_for(leases: &Api<Lease>, holder: &str) {
    let lease = json!({
        "metadata": { "name": FURTHER },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 250 },
    });
    if leases.get_opt(FURTHER).await.unwrap().is_some() {
        leases.patch(FURTHER, &PatchParams::default(), &Patch::Merge(&lease)).await.unwrap();
    } else {
        leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_further_lease_says_what_the_first_says_comes_back_when_it_is_deleted_and_is_released_with_it() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("further").await;
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
    let candidate = Candidate::start(cluster.admin(), election(&namespace, "me"), 0);
    candidate.holds().await;
    let first = record(&leases, FURTHER).await.unwrap();
    assert_eq!(first.holder, Some(candidate.handle.identity()));
    let renewed = || async { record(&leases, FURTHER).await.filter(|now| now.renewed > first.renewed) };
    wait_until("it to be renewed", DEADLINE, renewed).await;

    leases.delete(FURTHER, &DeleteParams::default()).await.unwrap();
    wait_until("it to come back", DEADLINE, || record(&leases, FURTHER)).await;
    assert!(candidate.handle.held().is_some(), "{:?}", candidate.handle.health());

    candidate.end().await.unwrap();
    for name in [LEASE, FURTHER] {
        assert_eq!(record(&leases, name).await.unwrap().holder, None, "{name}");
    }
    let next = Candidate::start(cluster.admin(), election(&namespace, "me"), 0);
    next.holds().await;
    next.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_another_holds_the_further_lease_nothing_is_claimed_and_a_hold_ends() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("further").await;
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
    written_for(&leases, "another").await;
    let candidate = Candidate::start(cluster.admin(), election(&namespace, "me"), 0);
    let said = wait_until("what it waits for", DEADLINE, || async { candidate.handle.health().last_error }).await;
    assert!(said.contains(&format!("the Lease {namespace}/{FURTHER} is held by another")), "{said}");
    assert_eq!(record(&leases, LEASE).await, None, "the first was written beside another holder");
    written_for(&leases, "").await;
    candidate.holds().await;
    assert_eq!(record(&leases, FURTHER).await.unwrap().holder, Some(candidate.handle.identity()));

    written_for(&leases, "another").await;
    let ended = || async { (candidate.handle.health().ended == Some(Reason::Taken)).then_some(()) };
    wait_until("its hold to end", DEADLINE, ended).await;
    assert_eq!(record(&leases, FURTHER).await.unwrap().holder.as_deref(), Some("another"));
    written_for(&leases, "").await;
    candidate.holds().await;
    candidate.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_waits_takes_the_further_lease_of_a_dead_one_over_with_the_first() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("further").await;
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), &namespace);
    let first = Candidate::start(cluster.admin(), election(&namespace, "me"), 0);
    let before = first.holds().await;
    let second = Candidate::start(cluster.admin(), election(&namespace, "me"), 0);
    wait_until("it to know", DEADLINE, || async { second.handle.health().holder }).await;
    first.crash().await;
    assert!(second.holds().await.epoch > before.epoch);
    for name in [LEASE, FURTHER] {
        assert_eq!(record(&leases, name).await.unwrap().holder, Some(second.handle.identity()), "{name}");
    }
    second.end().await.unwrap();
}
