//! Waiting for an object of the cluster.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use serde::de::DeserializeOwned;

/// Polls an object until `condition` holds, and returns it as it was then.
///
/// # Panics
/// When the deadline passes; the message names `what` was waited for and shows the last state of the object.
pub async fn wait_for_object<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    deadline: Duration,
    condition: impl Fn(&K) -> bool,
) -> K
where
    K: Clone + DeserializeOwned + Debug,
{
    let last = std::sync::Mutex::new("nothing was read".to_owned());
    let remember = |text: String| *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = text;
    let attempts = async {
        let mut pause = Duration::from_millis(10);
        loop {
            match api.get(name).await {
                Ok(object) if condition(&object) => return object,
                Ok(object) => remember(format!("{object:#?}")),
                Err(error) => remember(error.to_string()),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    };
    let waited = tokio::time::timeout(deadline, attempts).await;
    waited.unwrap_or_else(|_| {
        let last = last.lock().map(|last| last.clone()).unwrap_or_default();
        panic!("waited {deadline:?} in vain for {name}: {what}; last seen: {last}")
    })
}
