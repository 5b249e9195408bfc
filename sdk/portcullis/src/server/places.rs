//! Who gives way when all connections that a listener grants are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The places of one listener, in the order in which they were taken.
///
/// Peers that open connections and ask nothing must not keep the API server out: while all places are taken and someone
/// waits for one, those that are at no request are ended, the oldest first. A request under way is never cut off.
#[derive(Default)]
pub(super) struct Places {
    taken: Vec<Place>,
    idle: Arc<Notify>,
}

/// The place of one connection, and what is known of it.
#[derive(Clone)]
pub(super) struct Place {
    requests: Arc<AtomicUsize>,
    leave: CancellationToken,
    idle: Arc<Notify>,
}

impl Places {
    /// A place for a new connection.
    pub(super) fn take(&mut self) -> Place {
        self.taken.retain(Place::held);
        let place = Place { requests: Arc::default(), leave: CancellationToken::new(), idle: Arc::clone(&self.idle) };
        self.taken.push(place.clone());
        place
    }

    /// Tells the oldest connection without a request to leave, unless one has been told that has not left yet.
    pub(super) fn free_one(&mut self) {
        self.taken.retain(Place::held);
        // One that is told while its request arrives still answers it; another one leaves instead.
        let mut idle = self.taken.iter().filter(|place| !place.busy());
        if let Some(oldest) = idle.next()
            && !idle.any(|place| place.leave.is_cancelled())
        {
            oldest.leave.cancel();
        }
    }

    /// Waits until a connection has ended a request.
    pub(super) async fn some_idle(&self) {
        self.idle.notified().await;
    }
}

impl Place {
    /// Waits until the place is wanted for another connection.
    pub(super) async fn wanted(&self) {
        self.leave.cancelled().await;
    }

    /// Whether a request is under way.
    pub(super) fn busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Counts a request until what is returned is dropped.
    pub(super) fn request(&self) -> impl Drop + use<> {
        struct Request(Place);
        impl Drop for Request {
            fn drop(&mut self) {
                self.0.requests.fetch_sub(1, Ordering::Relaxed);
                self.0.idle.notify_one();
            }
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        Request(self.clone())
    }

    /// Whether the connection still has it: this side keeps one of two.
    fn held(&self) -> bool {
        Arc::strong_count(&self.requests) > 1
    }
}
