//! Watches one object.

use std::fmt::Debug;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{self, ExponentialBackoff, watch_object};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use portcullis_client::relist_after_outage;

/// First and longest pause between tries, before jitter adds up to as much again: a cluster waits for certificates, so
/// that none is later than five seconds when an outage ends, and replicas do not come all at once.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(2500);
/// A watch that has run this long without an error starts again with the first pause.
const QUIET: Duration = Duration::from_mins(1);

/// Yields the object of this name whenever it has changed or may have; `None` while there is none. The first item is
/// its current state. Errors are reported, and retried after pauses that grow to five seconds. Use a client that does
/// not retry by itself (`Config::default_retry`), or that gives up in time: kube's retries pause for up to 82 s, or as
/// long as `Retry-After` says.
pub(super) fn follow<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = Result<Option<K>, watcher::Error>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let name = name.to_owned();
    relist_after_outage(move || watch_object(api.clone(), &name).boxed()).backoff(pauses())
}

fn pauses() -> impl Backoff {
    let growing = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times();
    ResetTimerBackoff::new(ExponentialBackoff::from(growing), QUIET)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Secret;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// An API server with one Secret that answers nothing before `back`.
    fn away_until(back: Instant, request: &Request<Body>) -> Response<Body> {
        let (meta, secret) = (json!({ "resourceVersion": "1" }), json!({ "metadata": { "name": "tls" } }));
        let (code, answer) = if Instant::now() < back {
            (500, json!({ "kind": "Status", "status": "Failure", "code": 500, "message": "away", "reason": "Away" }))
        } else {
            (200, json!({ "kind": "SecretList", "apiVersion": "v1", "metadata": meta, "items": [secret] }))
        };
        assert!(!request.uri().query().unwrap().contains("watch="), "what is listed is enough here");
        Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_seen_within_five_seconds_after_any_outage() {
        for outage in [10, 100, 1000] {
            let back = Instant::now() + Duration::from_secs(outage);
            let answer = move |request| ready(Ok::<_, Infallible>(away_until(back, &request)));
            let client = Client::new(tower::service_fn(answer), "default");
            let mut versions = pin!(follow(Api::<Secret>::default_namespaced(client), "tls"));
            let mut tries = 0;
            while let Err(_away) = timeout(Duration::from_secs(6), versions.next()).await.unwrap().unwrap() {
                tries += 1;
            }
            let late = back.elapsed();
            assert!(late <= Duration::from_secs(5), "{late:?} after an outage of {outage} s");
            assert!((outage / 5..outage).contains(&tries), "{tries} tries in {outage} s");
        }
    }

    /// After a restore of etcd, versions continue from an earlier one: a watch from the old one would be silent for
    /// long.
    #[tokio::test(start_paused = true)]
    async fn an_object_is_listed_again_when_its_watch_cannot_restart() {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = lists.clone();
        let answer = move |request: Request<Body>| {
            let watches = request.uri().query().unwrap().contains("watch=");
            let count = if watches { 0 } else { counted.fetch_add(1, Ordering::Relaxed) };
            let away =
                json!({ "kind": "Status", "status": "Failure", "code": 500, "message": "away", "reason": "Away" });
            let meta = json!({ "name": "tls", "labels": { "list": count.to_string() } });
            let list = json!({ "kind": "SecretList", "apiVersion": "v1", "metadata": { "resourceVersion": "9" }, "items": [{ "metadata": meta }] });
            let (code, answer) = if watches { (500, away) } else { (200, list) };
            ready(Ok::<_, Infallible>(
                Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap(),
            ))
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let versions = follow(Api::<Secret>::default_namespaced(client), "tls");
        let listed = versions.filter_map(async |version| version.ok()??.metadata.labels?.remove("list"));
        let seen = timeout(Duration::from_mins(1), listed.take(3).collect::<Vec<String>>()).await;
        let seen = seen.expect("it lists again after each try in vain");
        assert_eq!(seen, ["0", "1", "2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_of_replicas_are_spread_and_forget_old_failures() {
        let (mut one, mut other) = (pauses(), pauses());
        let two: Vec<_> = (0..8).map(|_| (one.next().unwrap(), other.next().unwrap())).collect();
        assert!(two.iter().all(|(one, other)| one != other), "{two:?}");
        assert!(two[7].0 >= LONGEST_PAUSE, "{two:?}");
        tokio::time::advance(QUIET + Duration::from_secs(1)).await;
        assert!(one.next().unwrap() <= FIRST_PAUSE * 2);
    }
}
