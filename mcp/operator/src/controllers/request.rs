//! One question to the API server, and how long its answer may take.

use std::time::Duration;

use portcullis::controller::ControllerError;

/// Deadline of one request.
const DEADLINE: Duration = Duration::from_secs(15);

/// The answer to a request, or why there is none.
pub(super) async fn in_time<T>(
    verb: &'static str,
    object: impl Fn() -> String,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ControllerError> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ControllerError::Request { verb, object: object(), source: Box::new(source) }),
        Err(_) => Err(ControllerError::Timeout { verb, object: object(), seconds: DEADLINE.as_secs() }),
    }
}

/// Takes an object that is gone, or has been replaced in the meantime, for deleted.
pub(super) async fn gone<T>(deleted: impl Future<Output = kube::Result<T>>) -> kube::Result<()> {
    match deleted.await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        deleted => deleted.map(drop),
    }
}
