//! Bodies of requests that the handler does not read.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

/// Limits on draining a body that no handler reads: time, and bytes.
const LINGER: Duration = Duration::from_millis(500);
const DISCARDED: usize = 8 * 1024 * 1024;

/// Reads and drops the rest of a body, for at most 500 ms and 8 MiB; returns whether it was complete. Closing a socket
/// with unread bytes resets the connection, and the client would lose the response.
pub async fn discard<B: Body<Data = Bytes> + Send>(body: B) -> bool {
    let mut body = pin!(body);
    let rest = async {
        let mut left = DISCARDED;
        while let Some(frame) = body.frame().await {
            left = left.saturating_sub(frame.ok()?.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return None;
            }
        }
        Some(())
    };
    matches!(timeout(LINGER, rest).await, Ok(Some(())))
}
