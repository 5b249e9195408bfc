//! Limits that others cannot change: a request ends with its answer, or at its timeout by the driver's clock.

use std::future::Future;
use std::time::Duration;

use futures::future::{Either, select};

use crate::time::{Clock, Moment};

/// The longest that one request may take.
pub(crate) const REQUEST: Duration = Duration::from_secs(5);

/// The longest that a Lease lasts, whatever it says. A client that may write one may write sixty-eight years, and
/// deleting it would not end them for those who have seen it.
pub(crate) const LONGEST: Duration = Duration::from_mins(5);

/// Returns the answer, or `None` at `limit`.
pub(crate) async fn until<T>(clock: &dyn Clock, limit: Moment, request: impl Future<Output = T>) -> Option<T> {
    let request = std::pin::pin!(request);
    match select(request, clock.sleep_until(limit)).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    }
}
