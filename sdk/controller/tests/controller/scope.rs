//! Namespace scopes: a controller writes nothing in another operator's namespace, and reconciles what is handed back.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use portcullis::operator::{Runtime, Switch};
use portcullis::scopes::Scope;
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use portcullis_lease::{ScopeTiming, Scopes};
use portcullis_manifest::{ScopePolicy, scope_policy_name};
use portcullis_testing::wait_until;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::boat::Boat;
use crate::fixture::{PATIENCE, Place, Running, afloat};

/// An administrator hands the namespace over to the holder of this Lease.
async fn handed_over(place: &Place, lease: &str) {
    let (name, namespace) = (scope_policy_name(lease, &place.namespace), place.namespace.clone());
    let mut manifests = ScopePolicy { name, namespace, lease: lease.to_owned() }.manifests();
    for manifest in &mut manifests {
        manifest["metadata"]["labels"] = json!({ "app.kubernetes.io/name": lease });
    }
    place.cluster.apply(&manifests).await;
}

/// Makes this runtime that of a cluster-wide operator, which leaves the namespace to the holder of this Lease. Returns
/// what it knows, and the task that ends with the runtime, when it owns the namespace.
async fn cluster_wide(
    place: &Place,
    lease: &str,
    timing: ScopeTiming,
    runtime: &mut Runtime,
) -> (Scope, JoinHandle<()>) {
    handed_over(place, lease).await;
    let (scopes, driver) = Scopes::new(place.cluster.admin(), lease, lease, timing).unwrap();
    let scope = Scope::cluster_wide(scopes);
    runtime.scope = scope.clone();
    let driving = tokio::spawn(driver.run(runtime.stop.clone().cancelled_owned()));
    let known = || async { scope.owns(&place.namespace).may_write().then_some(()) };
    wait_until("the leases to be known", PATIENCE, known).await;
    (scope, driving)
}

/// A Lease as another operator has just written it.
fn held_by_another(name: &str, seconds: u32) -> Lease {
    let now = MicroTime(jiff::Timestamp::now());
    let spec = json!({"holderIdentity": "other", "leaseDurationSeconds": seconds, "renewTime": now});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_operators_namespace_is_left_alone_until_handed_over() {
    let place = Place::new("scope").await;
    let leases: Api<Lease> = place.api();
    let name = format!("{}-scope", place.namespace);
    let lease = held_by_another(&name, 8);
    // It is not renewed: it has to last until it was looked at.
    let timing = ScopeTiming::new(Duration::from_secs(8), Duration::from_millis(500), Duration::from_secs(3)).unwrap();
    let mut runtime = place.runtime(Switch::Off);
    let (scope, driving) = cluster_wide(&place, &name, timing, &mut runtime).await;
    // One that was there before might be that of an operator that is gone.
    leases.create(&PostParams::default(), &lease).await.unwrap();
    wait_until("the other's lease to be seen", PATIENCE, || async {
        (!scope.owns(&place.namespace).may_write()).then_some(())
    })
    .await;

    place.create("b", 3).await;
    let mark = place.cluster.audit().mark();
    let running = Running::start(place.controller(), runtime.clone(), afloat);
    wait_until("another's", PATIENCE, || async { (!scope.owns(&place.namespace).must_check()).then_some(()) }).await;
    assert_eq!(place.writes(mark).await, [], "it is another's");
    leases.delete(&name, &DeleteParams::default()).await.unwrap();
    place.until("b", "the verdict, without any change of the object", |boat| boat.says("Valid").is_some()).await;
    assert!(scope.owns(&place.namespace).may_write());
    running.end().await;
    driving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconcile_stops_writing_when_its_namespace_is_handed_over() {
    let place = Place::new("handover").await;
    let leases: Api<Lease> = place.api();
    let name = format!("{}-scope", place.namespace);
    let timing =
        ScopeTiming::new(Duration::from_secs(30), Duration::from_millis(500), Duration::from_secs(45)).unwrap();
    let mut runtime = place.runtime(Switch::On);
    let (scope, driving) = cluster_wide(&place, &name, timing, &mut runtime).await;

    place.create("b", 2).await;
    let (begun, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (outcome, mut told) = tokio::sync::mpsc::unbounded_channel();
    let shared = (begun.clone(), go.clone());
    let mark = place.cluster.audit().mark();
    let running = Running::start(place.controller(), runtime, move |cx| {
        let ((begun, go), outcome) = (shared.clone(), outcome.clone());
        async move {
            begun.add_permits(1);
            go.acquire().await?.forget();
            let result = afloat(cx).await;
            outcome.send(result.as_ref().err().map(ToString::to_string))?;
            result
        }
    });
    begun.acquire().await.unwrap().forget();
    leases.create(&PostParams::default(), &held_by_another(&name, 30)).await.unwrap();
    wait_until("another's", PATIENCE, || async { (!scope.owns(&place.namespace).may_write()).then_some(()) }).await;
    go.add_permits(100);
    let refused = tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap().unwrap();
    assert!(refused.ends_with("belongs to another operator or replica now"), "{refused}");
    running.end().await;
    assert_eq!(place.writes(mark).await, [], "another operator writes here now");
    driving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_after_the_handover_of_its_namespace_is_not_written() {
    let place = Place::new("late-verdict").await;
    let leases: Api<Lease> = place.api();
    let name = format!("{}-scope", place.namespace);
    let timing =
        ScopeTiming::new(Duration::from_secs(30), Duration::from_millis(500), Duration::from_secs(45)).unwrap();
    let (begun, go, given) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let shared = (begun.clone(), go.clone(), given.clone());
    let slow = move |_: Arc<Boat>, _: Context| {
        let (begun, go, given) = shared.clone();
        async move {
            begun.add_permits(1);
            go.acquire().await?.forget();
            given.add_permits(1);
            anyhow::Ok(Verdict::deny("a boat goes in circles"))
        }
    };
    let slow = Validate::<Boat>::new("oars").timeout(Duration::from_secs(30)).on_create(slow);
    let mut runtime = place.validated(Switch::Off, &Webhooks::new().validate(slow));
    let (scope, driving) = cluster_wide(&place, &name, timing, &mut runtime).await;

    place.create("odd", 3).await;
    let mark = place.cluster.audit().mark();
    let running = Running::start(place.controller(), runtime, afloat);
    begun.acquire().await.unwrap().forget();
    leases.create(&PostParams::default(), &held_by_another(&name, 30)).await.unwrap();
    wait_until("another's", PATIENCE, || async { (!scope.owns(&place.namespace).may_write()).then_some(()) }).await;
    go.add_permits(100);
    tokio::time::timeout(PATIENCE, given.acquire()).await.unwrap().unwrap().forget();
    running.end().await;
    assert_eq!(place.writes(mark).await, [], "another operator writes here now");
    driving.await.unwrap();
}
