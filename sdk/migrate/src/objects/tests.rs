//! Migrations against an API server that fails.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;
use tokio::time::Instant;

use super::*;

/// Answers to lists, in turn; the last for ever. Every write fails, after so long.
fn server(lists: Vec<(u16, Value)>, time: Duration) -> (Client, Arc<AtomicUsize>) {
    let writes = Arc::new(AtomicUsize::new(0));
    let (counted, lists) = (Arc::clone(&writes), Arc::new(Mutex::new(lists)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let write = request.method() == Method::PATCH;
        let (code, answer) = if write {
            counted.fetch_add(1, Relaxed);
            (500, status(500))
        } else {
            let mut lists = lists.lock().unwrap();
            if lists.len() > 1 { lists.remove(0) } else { lists[0].clone() }
        };
        async move {
            if write {
                tokio::time::sleep(time).await;
            }
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    (Client::new(service, "default"), writes)
}

fn status(code: u16) -> Value {
    json!({ "kind": "Status", "status": "Failure", "code": code, "message": "not well", "reason": "" })
}

/// A page of so many objects, and whether there is another.
fn page(objects: usize, more: bool) -> (u16, Value) {
    let metadata = |name: usize| json!({ "metadata": { "name": format!("a{name}"), "resourceVersion": "1" } });
    let token = if more { "more" } else { "" };
    let items: Vec<_> = (0..objects).map(metadata).collect();
    let kind = ("meta.k8s.io/v1", "PartialObjectMetadataList");
    (200, json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "continue": token }, "items": items }))
}

fn plan() -> Plan {
    let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage });
    let crd = json!({
        "metadata": { "name": "things.demo.example" },
        "spec": {
            "group": "demo.example", "scope": "Cluster", "names": { "kind": "Thing", "plural": "things" },
            "versions": [version("v1", false), version("v2", true)],
        },
        "status": { "storedVersions": ["v1", "v2"] },
    });
    Plan::of(&serde_json::from_value(crd).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_migration_gives_up_after_twenty_failed_objects() {
    for (time, longest) in
        [(Duration::ZERO, Duration::from_mins(1)), (Duration::from_hours(1), Duration::from_mins(20))]
    {
        let (client, writes) = server(vec![page(500, false)], time);
        let plan = plan();
        let mut objects = Objects::new(&client, &plan, PatchParams::default());
        let begun = Instant::now();
        let error = objects.rewrite(|_, _| {}).await.unwrap_err().to_string();
        assert!(error.starts_with("the API server could not write 20 objects; the last time it said:"), "{error}");
        assert!(begun.elapsed() < longest, "{:?} at {time:?} an answer", begun.elapsed());
        // Each is tried seven times, and sixteen at the same time.
        assert!(writes.load(Relaxed) <= 7 * (MOST_FAILED + 1 + WRITES), "{writes:?} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_list_is_counted_again() {
    // Fifteen fail before the list is forgotten, and the same fifteen after it.
    let lists = vec![page(15, true), (410, status(410)), page(15, false)];
    let (client, _) = server(lists, Duration::ZERO);
    let plan = plan();
    let mut objects = Objects::new(&client, &plan, PatchParams::default());
    objects.rewrite(|_, _| {}).await.unwrap();
    assert_eq!(objects.tally.refused.count, 15);
}
