//! Waiting on conditions: each wait has a deadline and names what it waited for.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::future::Future;
use std::time::Duration;

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
