//! Two replicas, of which one leads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, EvictParams, GroupVersionKind, PostParams};
use kube::{Api, Client};
use portcullis_node::{DEADLINE, Namespace, Node, OPERATOR_NAMESPACE, RELEASE, install_operator};
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::alone;

/// The interval of the requests that call the webhooks.
const EVERY: Duration = Duration::from_millis(100);

/// The time in which another replica takes over from a leader that was killed: the lease's 15 s, and what a busy
/// machine adds.
const TAKEN_OVER: Duration = Duration::from_secs(30);

fn objects(client: &Client, namespace: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("toolhive.stacklok.dev", version, kind);
    let plural = format!("{}s", kind.kind.to_lowercase());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, &plural))
}

/// Asks again and again for what the webhooks refuse, as a dry run, and counts what came of it.
struct Asking {
    stop: watch::Sender<bool>,
    counts: Arc<Mutex<BTreeMap<String, u32>>>,
    asked: JoinHandle<()>,
}

const REFUSED: &str = "refused by the webhook";

impl Asking {
    fn begin(namespace: &Namespace, client: &Client) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let configs = objects(client, &namespace.name, "v1alpha1", "MCPWebhookConfig");
        let refused: DynamicObject =
            serde_saphyr::from_str(include_str!("../../../../examples/refused/by-webhook.yaml")).unwrap();
        let counts = Arc::new(Mutex::new(BTreeMap::new()));
        let counted = Arc::clone(&counts);
        let asked = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            let dry_run = PostParams { dry_run: true, ..PostParams::default() };
            loop {
                tokio::select! {
                    _ = stopped.changed() => return,
                    _ = ticks.tick() => {}
                }
                let outcome = match configs.create(&dry_run, &refused).await {
                    Ok(_) => "admitted".to_owned(),
                    Err(error) if error.to_string().contains("denied the request") => REFUSED.to_owned(),
                    Err(error) => error.to_string(),
                };
                *counted.lock().unwrap().entry(outcome).or_default() += 1;
            }
        });
        Self { stop, counts, asked }
    }

    /// The number of times that each outcome was seen so far.
    fn so_far(&self) -> BTreeMap<String, u32> {
        self.counts.lock().unwrap().clone()
    }

    /// Stops, and returns the number of times that each outcome was seen.
    async fn end(self) -> BTreeMap<String, u32> {
        self.stop.send(true).unwrap();
        let counts = Arc::clone(&self.counts);
        self.asked.await.unwrap();
        std::mem::take(&mut *counts.lock().unwrap())
    }
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone()
}

struct Installation {
    leases: Api<Lease>,
    pods: Api<Pod>,
    deployments: Api<Deployment>,
}

impl Installation {
    fn of(client: &Client) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), OPERATOR_NAMESPACE),
            pods: Api::namespaced(client.clone(), OPERATOR_NAMESPACE),
            deployments: Api::namespaced(client.clone(), OPERATOR_NAMESPACE),
        }
    }

    async fn lease(&self) -> Lease {
        self.leases.get("mcp-operator-leader").await.unwrap()
    }

    /// The pod that leads, when another than `before` does.
    async fn leader(&self, before: &str) -> String {
        wait_until("a pod to lead", DEADLINE, || async {
            let holder = holder(&self.lease().await)?;
            let pod = holder.split('_').next()?.to_owned();
            (!pod.is_empty() && pod != before).then_some(pod)
        })
        .await
    }

    async fn both_serve(&self) {
        wait_for_object(&self.deployments, RELEASE, "both replicas to serve", DEADLINE, |deployment| {
            deployment.status.as_ref().is_some_and(|status| {
                [status.replicas, status.ready_replicas, status.available_replicas] == [Some(2); 3]
            })
        })
        .await;
    }
}

/// Applies a config and returns when its controller has judged it.
async fn reconciled(namespace: &Namespace, client: &Client, name: &str) {
    let configs = objects(client, &namespace.name, "v1beta1", "MCPToolConfig");
    let config: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig", "metadata": { "name": name },
        "spec": { "toolsFilter": ["greet"] },
    }))
    .unwrap();
    // While one replica dies, a call may go to it.
    wait_until("the config to be taken", DEADLINE, || async {
        configs.create(&PostParams::default(), &config).await.ok()
    })
    .await;
    wait_for_object(&configs, name, "its controller to judge it", DEADLINE, |config| {
        let conditions = config.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Valid" && condition["status"] == "True")
    })
    .await;
}

// P5
#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_leader_hands_over_without_a_lost_review() {
    let _alone = alone().await;
    let node = Node::running().await;
    install_operator().await;
    let (namespace, installation) = (node.namespace("evicted").await, Installation::of(&node.client));
    installation.both_serve().await;
    let leader = installation.leader("").await;
    let asking = Asking::begin(&namespace, &node.client);
    installation.pods.evict(&leader, &EvictParams::default()).await.unwrap();
    let next = installation.leader(&leader).await;
    reconciled(&namespace, &node.client, "after").await;
    installation.both_serve().await;
    let outcomes = asking.end().await;
    eprintln!("{leader} evicted, {next} leads: {outcomes:?}");
    assert_eq!(outcomes.keys().collect::<Vec<_>>(), [REFUSED], "{outcomes:?}");
}

// P5
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_followed_once_its_lease_expires() {
    let _alone = alone().await;
    let node = Node::running().await;
    install_operator().await;
    let (namespace, installation) = (node.namespace("killed").await, Installation::of(&node.client));
    installation.both_serve().await;
    let leader = installation.leader("").await;
    let asking = Asking::begin(&namespace, &node.client);
    let pod = installation.pods.get(&leader).await.unwrap();
    let former = holder(&installation.lease().await);
    node.kill(&pod);
    let before = asking.so_far();
    wait_until("the lease to have another holder", TAKEN_OVER, || async {
        let now = holder(&installation.lease().await);
        (now.is_some() && now != former).then_some(())
    })
    .await;
    let meanwhile = asking.so_far();
    reconciled(&namespace, &node.client, "after").await;
    installation.both_serve().await;
    let outcomes = asking.end().await;
    eprintln!("{leader} killed: {outcomes:?}, {meanwhile:?} until another led, {before:?} when it was killed");
    assert!(!outcomes.contains_key("admitted"), "{outcomes:?}");
    // Requests on their way to the killed replica fail until its endpoint is removed. The other answers all the while.
    let since = |counts: &BTreeMap<String, u32>, outcome: &str| {
        counts.get(outcome).copied().unwrap_or_default() - before.get(outcome).copied().unwrap_or_default()
    };
    let answered = since(&meanwhile, REFUSED);
    let unanswered: u32 = meanwhile.keys().filter(|outcome| *outcome != REFUSED).map(|it| since(&meanwhile, it)).sum();
    assert!(
        answered > unanswered,
        "without a leader, {answered} reviews were answered and {unanswered} were not: {meanwhile:?}"
    );
}
