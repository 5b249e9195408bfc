//! People who create tickets, and what becomes of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::RwLock;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::PATIENCE;

/// More than the API server keeps connections for, so that handshakes never end.
const PEOPLE: u32 = 30;
/// Interval at which each of them creates a ticket where nothing else runs: 200 a second, where the machine holds it.
#[allow(dead_code, reason = "for a bench")]
pub(crate) const FULL: Duration = Duration::from_millis(150);
/// The same for tests that share the machine with others.
#[allow(dead_code, reason = "a bench is alone")]
pub(crate) const QUARTER: Duration = Duration::from_millis(600);

/// The calls between two looks.
#[derive(Debug, Default)]
pub(crate) struct Lap {
    /// The duration of each create.
    created: Vec<Duration>,
    pub(crate) failed: Vec<String>,
    pub(crate) took: Duration,
}

impl Lap {
    pub(crate) fn created(&self) -> usize {
        self.created.len()
    }

    #[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
    pub(crate) fn per_second(&self) -> f64 {
        self.created.len() as f64 / self.took.as_secs_f64()
    }

    /// The time in which this many of a hundred creates were done.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.created.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
    }
}

type Tally = Mutex<Lap>;

pub(crate) struct Load {
    tally: Arc<Tally>,
    /// Held for reading by each call under way.
    pub(crate) gate: Arc<RwLock<()>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    begun: Instant,
}

impl Load {
    /// Creates tickets in their first version: each is converted, given a default and judged.
    pub(crate) fn start(client: Client, namespace: &str, every: Duration) -> Self {
        let (tally, gate, stop) = (Arc::new(Tally::default()), Arc::new(RwLock::new(())), CancellationToken::new());
        let kind = GroupVersionKind::gvk("rotation.example", "v1", "Ticket");
        let tickets: Api<DynamicObject> =
            Api::namespaced_with(client, namespace, &ApiResource::from_gvk_with_plural(&kind, "tickets"));
        let (counted, gated, stopped) = (Arc::clone(&tally), Arc::clone(&gate), stop.clone());
        let task = tokio::spawn(async move {
            let mut people = JoinSet::new();
            for person in 0..PEOPLE {
                let (tickets, counted, gated) = (tickets.clone(), Arc::clone(&counted), Arc::clone(&gated));
                let stopped = stopped.clone();
                people.spawn(async move {
                    // Not all at once.
                    let mut ticks = interval_at(Instant::now() + every * person / PEOPLE, every);
                    // Ticks that a busy machine misses are not made up for.
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
        self.tally.lock().unwrap().created()
    }

    /// Returns the calls since the last lap, or the start.
    pub(crate) fn lap(&mut self) -> Lap {
        let took = std::mem::replace(&mut self.begun, Instant::now()).elapsed();
        Lap { took, ..std::mem::take(&mut *self.tally.lock().unwrap()) }
    }

    pub(crate) async fn end(mut self) -> Lap {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, &mut self.task).await.unwrap().unwrap();
        self.lap()
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
    let made = tokio::time::timeout(PATIENCE, tickets.create(&params, &ticket)).await;
    let mut tally = tally.lock().unwrap();
    match made {
        Ok(Ok(made)) if made.data["spec"]["urgency"] == 1 => tally.created.push(begun.elapsed()),
        Ok(Ok(made)) => tally.failed.push(format!("was not defaulted: {}", made.data)),
        Ok(Err(error)) => tally.failed.push(error.to_string()),
        Err(_) => tally.failed.push("no answer".to_owned()),
    }
}
