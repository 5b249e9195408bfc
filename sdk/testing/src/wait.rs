//! Waiting on conditions: each wait has a deadline and names what it waited for.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use kube::Api;
use serde::de::DeserializeOwned;

/// Polls `check` until it returns a value, and returns that.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let answer = portcullis_testing::wait_until("the answer", Duration::from_secs(5), || async { Some(42) }).await;
/// assert_eq!(answer, 42);
/// # });
/// ```
///
/// # Panics
/// When the deadline passes; the message names `what` was waited for.
pub async fn wait_until<T, F, Fut>(what: &str, deadline: Duration, mut check: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let attempts = async {
        let mut pause = Duration::from_millis(10);
        loop {
            if let Some(value) = check().await {
                return value;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    };
    let waited = tokio::time::timeout(deadline, attempts).await;
    waited.unwrap_or_else(|_| panic!("waited {deadline:?} in vain for {what}"))
}

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
