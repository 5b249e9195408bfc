//! A watch that is accepted and sends no event: how long its view counts. And a view that is not used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use kube::Client;
use kube::client::Body;
use portcullis_testing::{ControlPlane, Stopwatch, wait_until};
use tower::{BoxError, service_fn};

use crate::{LeaseElection, Scopes};

use super::{Candidate, DEADLINE, LEASE, OPERATOR, hand_over, quick_scope_timing, scope_timing, timing};

/// A client whose watches can be dead, and the number of its requests: without those for Leases in the namespaces of
/// other tests, which hand them over at any time.
struct DeadWatches {
    client: Client,
    dead: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl DeadWatches {
    fn new(inner: Client, namespace: &str) -> Self {
        let own = format!("/namespaces/{namespace}/");
        let (dead, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (silent, counted) = (Arc::clone(&dead), Arc::clone(&requests));
        let service = service_fn(move |request: Request<Body>| {
            let (inner, query) = (inner.clone(), request.uri().query().unwrap_or_default().to_owned());
            let watches = query.contains("watch=true") || query.contains("watch=1");
            let path = request.uri().path();
            if !path.contains("/leases") || path.contains(&own) {
                counted.fetch_add(1, Ordering::AcqRel);
            }
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
        Self { client: Client::new(service, "default"), dead, requests }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_watch_hides_a_restricted_operator_while_it_settles() {
    let cluster = ControlPlane::shared().await;
    let team = cluster.namespace("deaf").await;
    let client = DeadWatches::new(cluster.admin(), &team);
    client.dead.store(true, Ordering::Release);
    let (scopes, driver) = Scopes::new(client.client.clone(), OPERATOR, LEASE, scope_timing()).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    wait_until("it to be ours", DEADLINE, || async { scopes.owns(&team).may_write().then_some(()) }).await;
    hand_over(cluster, &team).await;
    let tenant = timing().settle(Duration::from_millis(3600));
    let election = LeaseElection::scope(&team, LEASE, "tenant").unwrap().timing(tenant);
    let tenant = Candidate::start(cluster.admin(), election, 0);
    tenant.holds().await;
    assert!(!scopes.confirmed(&team).await.may_write(), "the other acts");
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_view_makes_no_request_until_it_is_asked() {
    let cluster = ControlPlane::shared().await;
    let team = cluster.namespace("rest").await;
    let counted = DeadWatches::new(cluster.admin(), &team);
    let (scopes, driver) = Scopes::new(counted.client.clone(), OPERATOR, LEASE, quick_scope_timing()).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    wait_until("the view", DEADLINE, || async { scopes.unknown().is_none().then_some(()) }).await;
    // A list that is under way may answer an earlier question.
    let rest = Stopwatch::start();
    wait_until("it to be old", DEADLINE, || async { (!scopes.health().fresh).then_some(()) }).await;
    let before = counted.requests.load(Ordering::Acquire);
    let long = || async { (rest.elapsed() > 4 * quick_scope_timing().freshness).then_some(()) };
    wait_until("some time", DEADLINE, long).await;
    let asked = counted.requests.load(Ordering::Acquire) - before;
    assert!(asked <= 2, "{asked} requests in {:?}", rest.elapsed());
    assert!(scopes.peek(&team).must_check() && !scopes.peek(&team).may_write());
    assert!(scopes.confirmed(&team).await.may_write());
    assert!(counted.requests.load(Ordering::Acquire) > before + asked);
    task.abort();
}
