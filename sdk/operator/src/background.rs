//! The work of a process beside answering the API server.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use super::caches::Caches;
use super::components::Task;
use super::controllers::Controllers;
use super::health::Health;
use super::leases::Leases;
use super::tasks::Tasks;
use super::{Components, Runtime};
use portcullis_lease::Leadership;

/// Its parts end in this order: first the controllers, then the Lease is given back, then the webhooks' sources.
pub(super) struct Background {
    /// Given to each part. The controllers end with its `stop`.
    pub(super) runtime: Runtime,
    /// The leases, which say who owns a namespace, and who leads.
    pub(super) leases: Leases,
    /// Becomes ready when the leases are known.
    pub(super) health: Health,
    /// Ends when the webhooks are not served any more: until then they ask the leases who owns a namespace.
    pub(super) serving: CancellationToken,
    /// Ends when their last call is answered: until then they read the caches.
    pub(super) answered: CancellationToken,
}

/// Starts the tasks of every replica, and fills the caches that webhooks read. All of it ends with the `stop` of
/// `runtime`, and gets the scope of a follower, whichever replica leads: it never writes.
pub(super) fn start_replica_tasks(
    replica_tasks: BTreeMap<String, Task>,
    caches: &Caches,
    runtime: Runtime,
    health: &Health,
    tasks: &mut Tasks,
) {
    let runtime = Runtime {
        scope: runtime.scope.with_leadership(Leadership::never()),
        leadership: Leadership::never(),
        ..runtime
    };
    for (name, task) in replica_tasks {
        tasks.spawn(name, &runtime.stop, task(runtime.clone()));
    }
    if !caches.is_empty() {
        let work = caches.clone().run(health.part("the caches"), runtime.clone());
        tasks.spawn("the caches", &runtime.stop, work);
    }
}

impl Background {
    /// Starts all of it. The controllers wait for `first`, and then for this process to lead.
    ///
    /// The Lease is given back when the controllers have ended, whether they were asked to, failed, panicked or were
    /// dropped: the next holder begins at once, so nothing may be written here any more; and while it is renewed
    /// in vain, no other replica begins.
    pub(super) fn start(
        self,
        components: Components,
        first: impl Future<Output = ()> + Send + 'static,
        tasks: &mut Tasks,
    ) {
        let Self { mut runtime, leases, health, serving, answered } = self;
        let working = runtime.stop.clone();
        runtime.scope = leases.scope.clone();
        runtime.leadership = Leadership::never();
        let caches = Caches::of(&components.webhooks);
        let validates_offline = !runtime.webhooks.is_on();
        start_replica_tasks(
            components.replica_tasks,
            &caches,
            Runtime { stop: answered, ..runtime.clone() },
            &health,
            tasks,
        );
        // While webhooks are off, the controllers evaluate validators that read the caches.
        let first = async move {
            first.await;
            if validates_offline {
                caches.filled(drop).await;
            }
        };
        let election = leases.election.clone();
        let controllers = Controllers { by_name: components.controllers, runtime };
        let give_back = CancellationToken::new();
        let ended = give_back.clone().drop_guard();
        tasks.adopt(async move {
            working.run_until_cancelled(first).await;
            let result = controllers.lead(election, working).await;
            drop(ended);
            result
        });
        let work = leases.work(health, give_back, serving.clone());
        tasks.spawn("the leases", &serving, work);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use http::{Method, Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use portcullis_manifest::ScopePolicy;
    use serde_json::{Value, json};
    use tokio::sync::Notify;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::shutdown::SHUTDOWN;
    use crate::{EmbedOptions, Operator};
    use portcullis_metrics::Metrics;

    /// Returns the policy or binding that hands namespace `team` over, depending on the kind in the path.
    fn proof(path: &str) -> Option<Value> {
        let (name, namespace) = ("op-namespace-scope.team".to_owned(), "team".to_owned());
        let [policy, binding] = ScopePolicy { name, namespace, lease: "op-namespace-scope".to_owned() }.manifests();
        let of = |kind: &str| path.contains(kind);
        of("/validatingadmissionpolicies/")
            .then_some(policy)
            .or(of("/validatingadmissionpolicybindings/").then_some(binding))
    }

    /// An API server of one Lease, which takes a second for each answer.
    async fn answer(kept: Arc<Mutex<Value>>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        sleep(Duration::from_secs(1)).await;
        if let Some(proof) = proof(request.uri().path()) {
            return Ok(Response::new(Body::from(proof.to_string().into_bytes())));
        }
        let method = request.method().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut kept = kept.lock().unwrap();
        if method != Method::GET {
            json_patch::merge(&mut kept, &serde_json::from_slice(&body).unwrap());
            kept["metadata"]["resourceVersion"] = json!("1");
        }
        let (code, answer) = match &*kept {
            Value::Null => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})),
            lease => (200, lease.clone()),
        };
        Ok(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_even_if_a_reconcile_hangs() {
        let kept: Arc<Mutex<Value>> = Arc::default();
        let lease = kept.clone();
        let client = kube::Client::new(tower::service_fn(move |request| answer(lease.clone(), request)), "default");
        let mut installation = Operator::new("op").installation("here").unwrap();
        installation.restricted_to = Some("team".to_owned());
        let options = EmbedOptions { identity: Some("me".to_owned()), ..EmbedOptions::new(installation) };
        let leases = Leases::new(&client, true, &options).unwrap();
        let started = Arc::new(Notify::new());
        let starts = started.clone();
        let components = Components::default().leader_task("hangs", [], move |_| {
            starts.notify_one();
            pending::<()>()
        });
        let (stop, serving) = (CancellationToken::new(), CancellationToken::new());
        let work = Background {
            runtime: Runtime::new(client, "here", stop.clone()),
            leases,
            health: Health::new("the leases", Metrics::new()),
            serving: serving.clone(),
            answered: serving.clone(),
        };
        let mut tasks = Tasks::default();
        work.start(components, ready(()), &mut tasks);
        timeout(Duration::from_mins(1), started.notified()).await.expect("it leads");
        assert!(kept.lock().unwrap()["spec"]["holderIdentity"].as_str().unwrap().starts_with("me_"));
        stop.cancel();
        serving.cancel();
        timeout(SHUTDOWN, async { while tasks.next().await.is_some() {} }).await.expect("all ends in time");
        assert_eq!(kept.lock().unwrap()["spec"]["holderIdentity"], "");
    }
}
