//! A watch that is accepted and never says anything: how long it is believed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use portcullis_lease::{LeaseElection, Scopes};
use portcullis_testing::{ControlPlane, Stopwatch, wait_until};
use serde_json::json;
use tower::{BoxError, service_fn};

use super::{Candidate, DEADLINE, LEASE, hand_over, scope_timing, timing, vouchers};

/// A client whose watches are dead from now on, and how many lists of labelled Leases went by it.
struct Deaf {
    client: Client,
    dead: Arc<AtomicBool>,
    lists: Arc<AtomicUsize>,
}

impl Deaf {
    fn new(inner: Client) -> Self {
        let (dead, lists) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (silent, counted) = (Arc::clone(&dead), Arc::clone(&lists));
        let service = service_fn(move |request: Request<Body>| {
            let (inner, query) = (inner.clone(), request.uri().query().unwrap_or_default().to_owned());
            let watches = query.contains("watch=true") || query.contains("watch=1");
            let labelled = request.uri().path().ends_with("/leases") && query.contains("labelSelector");
            counted.fetch_add(usize::from(labelled && !watches), Ordering::AcqRel);
            let silent = silent.load(Ordering::Acquire) && watches;
            async move {
                if silent {
                    let never = futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>();
                    return Ok(Response::new(StreamBody::new(never).map_err(BoxError::from).boxed_unsync()));
                }
                let answer = inner.send(request).await.map_err(BoxError::from)?;
                Ok::<_, BoxError>(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()))
            }
        });
        Self { client: Client::new(service, "default"), dead, lists }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_watch_hides_neither_an_older_installation_nor_a_restricted_operator_for_longer_than_its_bound() {
    const LABEL: (&str, &str) = ("example.dev/operator", "deaf");
    let cluster = ControlPlane::shared().await;
    let (a, b) = (cluster.namespace("a-older").await, cluster.namespace("b-home").await);
    let team = cluster.namespace("deaf").await;
    // The other one was there first, and is not held now.
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), &a);
    let older = json!({ "metadata": { "name": "op-leader", "labels": { LABEL.0: LABEL.1 } } });
    let older: Lease = serde_json::from_value(older).unwrap();
    leases.create(&PostParams::default(), &older).await.unwrap();

    let deaf = Deaf::new(cluster.admin());
    let election =
        LeaseElection::leader_election(&b, "op-leader", "me").unwrap().label(LABEL.0, LABEL.1).timing(timing());
    let leader = Candidate::start(cluster.admin(), election, 0);
    let hold = leader.holds().await;
    deaf.dead.store(true, Ordering::Release);
    let (scopes, driver) = Scopes::new(deaf.client.clone(), &[LEASE], vouchers(), scope_timing()).unwrap();
    let label = format!("{}={}", LABEL.0, LABEL.1);
    let driver = driver.among(&label, "-leader", &b, "op-leader", leader.handle.clone());
    let task = tokio::spawn(driver.run(std::future::pending()));
    wait_until("it to lead", DEADLINE, || async { scopes.leads(hold.epoch).then_some(()) }).await;
    let listed = deaf.lists.load(Ordering::Acquire);
    wait_until("it to list because it is deaf", DEADLINE, || async {
        (deaf.lists.load(Ordering::Acquire) > listed + 2).then_some(())
    })
    .await;

    let election =
        LeaseElection::leader_election(&a, "op-leader", "other").unwrap().label(LABEL.0, LABEL.1).timing(timing());
    let first = Candidate::start(cluster.admin(), election, 0);
    first.holds().await;
    let begun = Stopwatch::start();
    wait_until("it to stand back", DEADLINE, || async { (!scopes.leads(hold.epoch)).then_some(()) }).await;
    let noticed = begun.elapsed();
    eprintln!("an older installation begins, the watch is dead: noticed after {noticed:?}");
    assert!(noticed <= scope_timing().hearing() + std::time::Duration::from_millis(500), "{noticed:?}");

    hand_over(cluster, &team).await;
    let tenant = timing().settle(std::time::Duration::from_millis(3600));
    let election = LeaseElection::scope(&team, LEASE, "tenant").unwrap().timing(tenant).vouched_by(vouchers());
    let tenant = Candidate::start(cluster.admin(), election, 0);
    tenant.holds().await;
    assert!(!scopes.owns(&team).may_write(), "it acts, and so nobody else does");
    task.abort();
}
