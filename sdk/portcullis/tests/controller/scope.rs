//! Whose namespace it is: nothing is done in another's, and what comes back is looked at again.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use portcullis::operator::Switch;
use portcullis::scopes::Scope;
use portcullis_lease::{ScopeTiming, Scopes};
use portcullis_testing::wait_until;
use serde_json::json;

use crate::fixture::{PATIENCE, Place, Running, afloat};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_operators_namespace_is_left_alone_and_reconciled_when_it_is_handed_over() {
    let place = Place::new("scope").await;
    let leases: Api<Lease> = place.api();
    let name = format!("{}-scope", place.namespace);
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 2, "renewTime": MicroTime(jiff::Timestamp::now())},
    }))
    .unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let timing = ScopeTiming::new(Duration::from_secs(2), Duration::from_millis(500), Duration::from_secs(3)).unwrap();
    let (scopes, driver) = Scopes::new(place.cluster.admin(), &[&name], timing).unwrap();
    let mut runtime = place.runtime(Switch::Off);
    runtime.scope = Scope::cluster_wide(scopes.clone());
    let driving = tokio::spawn(driver.run(runtime.stop.clone().cancelled_owned()));
    wait_until("the other's lease to be seen", PATIENCE, || async { (!scopes.claims().is_empty()).then_some(()) })
        .await;

    place.create("b", 3).await;
    let mark = place.cluster.audit().mark();
    let running = Running::start(place.controller(), runtime.clone(), afloat);
    wait_until("another's", PATIENCE, || async { (!scopes.owns(&place.namespace).must_check()).then_some(()) }).await;
    assert_eq!(place.writes(mark).await, [], "it is another's");
    leases.delete(&name, &DeleteParams::default()).await.unwrap();
    place.until("b", "the verdict, without any change of the object", |boat| boat.says("Valid").is_some()).await;
    assert!(scopes.owns(&place.namespace).may_write());
    running.end().await;
    driving.await.unwrap();
}
