//! Leases that only look like those of other installations: anybody who may create Leases may make many.

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use portcullis_lease::{LeaseElection, Scopes};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::json;

use super::{Candidate, DEADLINE, LEASE, scope_timing, timing, vouchers};

const LABEL: (&str, &str) = ("example.dev/operator", "many");

async fn forge(leases: &Api<Lease>, name: String) {
    let metadata = json!({ "name": name, "labels": { LABEL.0: LABEL.1 } });
    let lease = json!({ "metadata": metadata, "spec": { "holderIdentity": "tenant", "leaseDurationSeconds": 3600 } });
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_leases_than_are_listed_are_said_and_keep_nobody_who_was_there_first_from_acting() {
    let cluster = ControlPlane::shared().await;
    // What is listed first is not ours.
    let (flood, home) = (cluster.namespace("a-tenant").await, cluster.namespace("b-home").await);
    let forged: Api<Lease> = Api::namespaced(cluster.admin(), &flood);
    // Older than ours, and not named as a leader's.
    forge(&forged, "older".to_owned()).await;
    let election =
        LeaseElection::leader_election(&home, "op-leader", "me").unwrap().label(LABEL.0, LABEL.1).timing(timing());
    let leader = Candidate::start(cluster.admin(), election, 0);
    let hold = leader.holds().await;
    let (scopes, driver) = Scopes::new(cluster.admin(), &[LEASE], vouchers(), scope_timing()).unwrap();
    let driver =
        driver.among(&format!("{}={}", LABEL.0, LABEL.1), "-leader", &home, "op-leader", leader.handle.clone());
    let task = tokio::spawn(driver.run(std::future::pending()));
    let leads = || async { scopes.leads(hold.epoch).then_some(()) };
    wait_until("it to lead beside a Lease of another name", DEADLINE, leads).await;
    assert_eq!((scopes.ahead(), scopes.health().last_error), (None, None));

    // A second later, so that the order by name does not count.
    let made = Api::<Lease>::namespaced(cluster.admin(), &home).get("op-leader").await.unwrap();
    let made = made.metadata.creation_timestamp.unwrap().0.as_second();
    let later = || async { (jiff::Timestamp::now().as_second() > made).then_some(()) };
    wait_until("the next second", DEADLINE, later).await;
    for some in (0..510).collect::<Vec<_>>().chunks(32) {
        join_all(some.iter().map(|n| forge(&forged, format!("x{n:03}-leader")))).await;
    }
    let said = wait_until("it to say that there are many", DEADLINE, || async { scopes.health().last_error }).await;
    assert!(said.contains("more than 500 leases labelled example.dev/operator=many"), "{said}");
    let health = scopes.health();
    assert!(health.fresh && health.ahead.is_none(), "{health:?}");
    wait_until("it to lead all the same", DEADLINE, leads).await;
    assert!(scopes.owns(&home).may_write());
    task.abort();
    leader.end().await.unwrap();
}
