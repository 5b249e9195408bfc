//! Bodies of requests, read within bounds of size, time and memory.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::Body;
use tokio::time::{Instant, timeout_at};

use super::HttpError;
use super::budget::{Budget, Share};
use crate::rejected::Rejected;
use portcullis_listener::{Crowded, discard};

/// The first buffer of a body that comes in parts. It grows with what comes, whatever was announced.
const FIRST_BUFFER: usize = 16 * 1024;
/// The interval at which a body that makes no progress is checked.
const GLANCE: Duration = Duration::from_millis(250);
/// While others wait for its memory, a body has this long...
const GRACE: Duration = Duration::from_secs(1);
/// ...and as long again as its bytes take at this rate.
const BYTES_PER_MICROSECOND: usize = 4;

/// The limits within which one body is read.
pub(super) struct Reading<'a> {
    pub(super) began: Instant,
    pub(super) deadline: Instant,
    /// The value of `Content-Length`.
    pub(super) announced: Option<usize>,
    /// The most that a body may have.
    pub(super) limit: usize,
    /// The budget that the body is taken from.
    pub(super) budget: &'a Budget,
    /// Whether others wait for a place on the listener, where it is ours.
    pub(super) crowded: Option<&'a Crowded>,
}

/// A whole body, and its part of the budget.
pub(super) type Held = (Bytes, Share);

impl Reading<'_> {
    /// The whole body. The rest of a refused body is read for a moment, so that the answer is not lost.
    pub(super) async fn whole<B>(&self, body: B) -> Result<Held, HttpError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut body = pin!(body);
        let read = if self.announced.is_some_and(|length| length > self.limit) {
            Err(self.too_large())
        } else {
            // An error gives the memory back before it is answered.
            self.collect(body.as_mut()).await
        };
        if let Err(HttpError { reason: Rejected::TooLarge | Rejected::Shed, .. }) = read {
            discard(body).await;
        }
        read
    }

    async fn collect<B>(&self, mut body: Pin<&mut B>) -> Result<Held, HttpError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut share = self.budget.share();
        let Some(first) = self.part(&mut body, 0).await? else { return Ok((Bytes::new(), share)) };
        if body.is_end_stream() {
            // Most bodies arrive in one part, and are not copied.
            self.fits(first.len())?;
            Self::take(&mut share, first.len())?;
            return Ok((first, share));
        }
        let (mut whole, mut part) = (Vec::new(), Some(first));
        while let Some(bytes) = part {
            let length = whole.len() + bytes.len();
            self.fits(length)?;
            if length > whole.capacity() {
                let most = self.announced.unwrap_or(self.limit).max(length);
                let capacity = (2 * whole.capacity()).clamp(FIRST_BUFFER, self.limit).min(most).max(length);
                Self::take(&mut share, capacity - whole.capacity())?;
                whole.reserve_exact(capacity - whole.len());
            }
            whole.extend_from_slice(&bytes);
            part = self.part(&mut body, length).await?;
        }
        Ok((whole.into(), share))
    }

    /// The next part of a body of which so many bytes have come; none when that was all.
    async fn part<B>(&self, body: &mut Pin<&mut B>, came: usize) -> Result<Option<Bytes>, HttpError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut glance = self.began + GLANCE;
        loop {
            match timeout_at(glance.min(self.deadline), body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    // Trailers are ignored.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Ok(Some(Err(error))) => {
                    return Err(HttpError::malformed(format!("cannot read the body: {}", error.into())));
                }
                Ok(None) => return Ok(None),
                Err(_) => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        let status = StatusCode::REQUEST_TIMEOUT;
                        return Err(HttpError::new(status, Rejected::Timeout, "body did not arrive in time"));
                    }
                    self.keeps_up(now, came)?;
                    glance = now + GLANCE;
                }
            }
        }
    }

    /// A slow peer may continue while no other call waits for what it holds.
    fn keeps_up(&self, now: Instant, came: usize) -> Result<(), HttpError> {
        let time = GRACE + Duration::from_micros((came / BYTES_PER_MICROSECOND) as u64);
        if now > self.began + time && (self.budget.short(now) || self.crowded.is_some_and(Crowded::get)) {
            return Err(HttpError::shed("body arrives too slowly while others wait"));
        }
        Ok(())
    }

    fn fits(&self, length: usize) -> Result<(), HttpError> {
        if length > self.limit { Err(self.too_large()) } else { Ok(()) }
    }

    fn take(share: &mut Share, bytes: usize) -> Result<(), HttpError> {
        if share.grow(bytes) { Ok(()) } else { Err(HttpError::shed("no memory is left for more bodies")) }
    }

    fn too_large(&self) -> HttpError {
        let problem = format!("body is larger than {} bytes", self.limit);
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, Rejected::TooLarge, problem)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// The parts, and then nothing more without an end.
    fn unfinished(parts: Vec<usize>) -> impl Body<Data = Bytes, Error = Infallible> + Send {
        let frames = parts.into_iter().map(|size| Ok(Frame::data(Bytes::from(vec![b' '; size]))));
        StreamBody::new(futures::StreamExt::chain(stream::iter(frames), stream::pending()))
    }

    fn reading(budget: &Budget, announced: Option<usize>) -> Reading<'_> {
        let began = Instant::now();
        let deadline = began + Duration::from_millis(50);
        Reading { began, deadline, announced, limit: 7 * MIB, budget, crowded: None }
    }

    #[tokio::test]
    async fn memory_is_taken_for_what_came_and_not_for_what_was_announced() {
        // Memory of 16 KiB, for one who sends a little of the 7 MiB that it announces: enough to wait for the rest.
        let budget = Budget::of(FIRST_BUFFER);
        let error = reading(&budget, Some(7 * MIB)).whole(unfinished(vec![100, 100])).await.unwrap_err();
        assert_eq!(error.reason, Rejected::Timeout);
        let error = reading(&budget, Some(7 * MIB)).whole(unfinished(vec![100, FIRST_BUFFER])).await.unwrap_err();
        assert_eq!(error.reason, Rejected::Shed, "more than there is");
        assert!(budget.share().grow(FIRST_BUFFER), "all of it is given back");
    }

    #[tokio::test]
    async fn bodies_come_whole_in_one_part_or_in_many() {
        let budget = Budget::of(8 * MIB);
        for parts in [vec![], vec![10], vec![10, 20], vec![MIB; 7], vec![30_000; 20]] {
            let total: usize = parts.iter().sum();
            let frames = parts.into_iter().map(|size| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; size]))));
            let body = StreamBody::new(stream::iter(frames));
            let (bytes, share) = reading(&budget, None).whole(body).await.unwrap();
            assert_eq!(bytes.len(), total);
            drop(share);
            assert!(budget.share().grow(8 * MIB));
        }
        let error = reading(&budget, None).whole(unfinished(vec![MIB; 8])).await.unwrap_err();
        assert_eq!(error.reason, Rejected::TooLarge);
    }
}
