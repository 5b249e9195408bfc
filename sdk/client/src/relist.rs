//! Watches that list again after an outage of the API server.

use std::fmt::Debug;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Watches with kube's `watcher`, and [lists again](relist_after_outage) when a watch cannot be resumed.
pub fn watched<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
{
    relist_after_outage(move || watcher::watcher(api.clone(), config.clone()).boxed())
}

/// Delivers the events of the watch that `begin` starts, and starts it again, with a list, when it cannot be resumed. A
/// resume from the last seen resource version is unsafe after an outage of the API server: etcd may have been restored
/// from a backup, with lower resource versions, and the API server accepts a watch from a version in the future but
/// sends nothing until it is reached (<https://github.com/kubernetes/kubernetes/issues/107457>).
pub fn relist_after_outage<T: 'static>(
    begin: impl Fn() -> BoxStream<'static, watcher::Result<T>> + Send,
) -> impl Stream<Item = watcher::Result<T>> + Send {
    stream::unfold((begin(), begin), |(mut watch, begin)| async move {
        let event = watch.next().await?;
        if matches!(event, Err(Error::WatchStartFailed(_))) {
            watch = begin();
        }
        Some((event, (watch, begin)))
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use kube::{Client, ResourceExt as _};
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;

    fn map(version: u32) -> Value {
        json!({ "metadata": { "name": "a", "namespace": "team", "resourceVersion": version.to_string() } })
    }

    fn list(version: u32) -> (u16, String) {
        let list = json!({
            "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": version.to_string() },
            "items": [map(version)],
        });
        (200, list.to_string())
    }

    /// An API server that is away when a watch has ended, and comes back with what it had stored before.
    #[tokio::test(start_paused = true)]
    async fn no_watch_resumes_from_a_future_version_after_an_etcd_restore() {
        let changed = json!({ "type": "MODIFIED", "object": map(41) }).to_string() + "\n";
        let answers = [list(900), (200, String::new()), (500, String::new()), list(40), (200, changed)];
        let (answers, asked) = (Arc::new(Mutex::new(answers.into_iter())), Arc::new(Mutex::new(Vec::new())));
        let asks = asked.clone();
        let client = Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let version = request.uri().query().into_iter().flat_map(|query| query.split('&'));
                asks.lock()
                    .unwrap()
                    .extend(version.filter_map(|it| it.strip_prefix("resourceVersion=")).map(str::to_owned));
                let answer = answers.lock().unwrap().next();
                async move {
                    let Some((code, body)) = answer else { return std::future::pending().await };
                    Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap())
                }
            }),
            "default",
        );
        let events = watched::<ConfigMap>(Api::all(client), watcher::Config::default());
        let versions = events.filter_map(async |event| match event {
            Ok(Event::InitApply(map) | Event::Apply(map)) => map.resource_version(),
            _ => None,
        });
        let seen = timeout(Duration::from_mins(1), versions.take(3).collect::<Vec<String>>()).await;
        let seen = seen.expect("it lists again, instead of waiting for a version that is yet to come");
        assert_eq!(seen, ["900", "40", "41"]);
        // The first list, the list after the watch has ended, and the restored list.
        assert_eq!(*asked.lock().unwrap(), ["900", "900", "40"]);
    }
}
