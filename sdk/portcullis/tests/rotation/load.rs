//! People who create tickets, and what becomes of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::RwLock;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::PATIENCE;

/// More at a time than the API server keeps connections for, so that handshakes never end: 200 calls a second.
const PEOPLE: u32 = 30;
const EVERY: Duration = Duration::from_millis(150);

/// What happened.
#[derive(Default)]
struct Tally {
    created: AtomicUsize,
    failed: Mutex<Vec<String>>,
    slowest: Mutex<Duration>,
}

pub(crate) struct Load {
    tally: Arc<Tally>,
    /// Held for reading by each call under way.
    pub(crate) gate: Arc<RwLock<()>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    begun: Instant,
}

/// What it came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) created: usize,
    pub(crate) failed: Vec<String>,
    pub(crate) slowest: Duration,
    pub(crate) took: Duration,
}

impl Load {
    /// Creates tickets in their first version: each is converted, given a default and judged.
    pub(crate) fn start(client: Client, namespace: &str) -> Self {
        let (tally, gate, stop) = (Arc::new(Tally::default()), Arc::new(RwLock::new(())), CancellationToken::new());
        let kind = GroupVersionKind::gvk("rotation.example", "v1", "Ticket");
        let tickets: Api<DynamicObject> =
            Api::namespaced_with(client, namespace, &ApiResource::from_gvk_with_plural(&kind, "tickets"));
        let (counted, gated, stopped) = (Arc::clone(&tally), Arc::clone(&gate), stop.clone());
        let task = tokio::spawn(async move {
            let mut people = JoinSet::new();
            for _ in 0..PEOPLE {
                let (tickets, counted, gated) = (tickets.clone(), Arc::clone(&counted), Arc::clone(&gated));
                let stopped = stopped.clone();
                people.spawn(async move {
                    let mut ticks = interval(EVERY);
                    // What the machine holds: nobody makes up for time lost.
                    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
                        call(&tickets, &counted, &gated).await;
                    }
                });
            }
            while people.join_next().await.is_some() {}
        });
        Self { tally, gate, stop, task, begun: Instant::now() }
    }

    pub(crate) fn created(&self) -> usize {
        self.tally.created.load(Ordering::Relaxed)
    }

    pub(crate) async fn end(self) -> Outcome {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
        let failed = std::mem::take(&mut *self.tally.failed.lock().unwrap());
        let (created, slowest) = (self.tally.created.load(Ordering::Relaxed), *self.tally.slowest.lock().unwrap());
        Outcome { created, failed, slowest, took: self.begun.elapsed() }
    }
}

async fn call(tickets: &Api<DynamicObject>, tally: &Tally, gate: &RwLock<()>) {
    let _open = gate.read().await;
    let begun = Instant::now();
    let ticket = json!({
        "apiVersion": "rotation.example/v1", "kind": "Ticket", "metadata": { "generateName": "t-" }, "spec": { "text": "x" },
    });
    let ticket = serde_json::from_value(ticket).unwrap();
    // Everything but the write happens in a dry run; etcd is not what is tested.
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match tokio::time::timeout(PATIENCE, tickets.create(&params, &ticket)).await {
        Ok(Ok(made)) if made.data["spec"]["urgency"] == 1 => _ = tally.created.fetch_add(1, Ordering::Relaxed),
        Ok(Ok(made)) => tally.failed.lock().unwrap().push(format!("was not defaulted: {}", made.data)),
        Ok(Err(error)) => tally.failed.lock().unwrap().push(error.to_string()),
        Err(_) => tally.failed.lock().unwrap().push("no answer".to_owned()),
    }
    let mut slowest = tally.slowest.lock().unwrap();
    *slowest = begun.elapsed().max(*slowest);
}
