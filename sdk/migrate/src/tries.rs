//! Requests to the API server, retried where that may help.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use portcullis_client::error_chain;

/// The timeout of one request: a list is converted by a webhook, which has 30 s.
const ANSWER: Duration = Duration::from_mins(1);
/// The number of attempts.
const TRIES: usize = 7;
/// First and longest pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The API server refused, and a retry does not help.
    #[error("{}", error_chain(.0))]
    Refused(kube::Error),
    /// The last of all attempts failed, with this answer or error of the connection.
    #[error("{}; tried {TRIES} times", error_chain(.0))]
    Failed(kube::Error),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s; tried {TRIES} times", ANSWER.as_secs())]
    Slow,
}

impl NoAnswer {
    /// The status that was answered at last.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(kube::Error::Api(status)) | Self::Failed(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// Whether it is an answer, and will be the same the next time.
    pub(crate) fn refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

/// Asks until there is an answer that is not about the moment.
pub(crate) async fn tried<T>(mut ask: impl AsyncFnMut() -> kube::Result<T>) -> Result<T, NoAnswer> {
    let pauses = ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE);
    let mut pauses = pauses.with_max_times(TRIES - 1).build();
    loop {
        let problem = match timeout(ANSWER, ask()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if passing(&error) => NoAnswer::Failed(error),
            Ok(Err(error)) => return Err(NoAnswer::Refused(error)),
            Err(_) => NoAnswer::Slow,
        };
        let Some(pause) = pauses.next() else { return Err(problem) };
        sleep(pause).await;
    }
}

/// Whether the same question may have another answer in a moment.
fn passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 409 | 429 | 500..),
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}
