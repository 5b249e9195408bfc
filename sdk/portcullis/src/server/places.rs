//! Who gives way when all connections that a listener grants are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::Waker;

use futures::task::AtomicWaker;
use tokio::sync::Notify;

use super::body::Crowded;

/// Connections that are told to leave at the same time. More than one, so that peers that take their time to leave do
/// not hold up all that wait; few, so that no pool is emptied for one newcomer.
const LEAVING: usize = 16;

/// The places of one listener, in the order in which they were taken.
///
/// Peers that open connections and ask nothing must not keep the API server out: while all places are taken and someone
/// waits for one, those that are at no request are ended: first those that never asked anything, then the oldest. A
/// request under way is never cut off.
#[derive(Default)]
pub(super) struct Places {
    taken: Vec<Place>,
    idle: Arc<Notify>,
    crowded: Crowded,
}

/// The place of one connection, and what is known of it.
#[derive(Clone)]
pub(super) struct Place {
    state: Arc<State>,
}

struct State {
    /// Requests under way.
    requests: AtomicUsize,
    /// Requests that have begun.
    asked: AtomicUsize,
    told: AtomicU8,
    /// The connection's task.
    task: AtomicWaker,
    /// Taken beyond the limit.
    beyond: bool,
    /// Told when a request ends while the listener is crowded.
    idle: Arc<Notify>,
    crowded: Crowded,
}

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Told {
    /// Nothing.
    Stay = 0,
    /// Its place is wanted: leave unless a request is under way.
    Leave = 1,
    /// The listener ends: finish what is under way.
    End = 2,
    /// That took too long: say so.
    Cut = 3,
}

impl Places {
    /// A place for a new connection; one `beyond` the limit is answered and gone at once.
    pub(super) fn take(&mut self, beyond: bool) -> Place {
        self.taken.retain(Place::held);
        let place = Place {
            state: Arc::new(State {
                requests: AtomicUsize::new(0),
                asked: AtomicUsize::new(0),
                told: AtomicU8::new(Told::Stay as u8),
                task: AtomicWaker::new(),
                beyond,
                idle: Arc::clone(&self.idle),
                crowded: self.crowded.clone(),
            }),
        };
        self.taken.push(place.clone());
        place
    }

    /// Has some connections without a request leave. False when none is on its way out: then all are at work.
    pub(super) fn free_some(&mut self) -> bool {
        self.taken.retain(Place::held);
        // One that is told while its request arrives still answers it, and is not idle meanwhile.
        let idle = |place: &&Place| !place.busy();
        let mut leaving = self.taken.iter().filter(idle).filter(|place| place.told() >= Told::Leave).count();
        for heard in [false, true] {
            let stays = |place: &&Place| place.told() == Told::Stay && (place.asked() > 0) == heard;
            for place in self.taken.iter().filter(idle).filter(stays) {
                if leaving >= LEAVING.min(self.taken.len().div_ceil(4)) {
                    return true;
                }
                place.tell(Told::Leave);
                leaving += 1;
            }
        }
        leaving > 0
    }

    /// Tells all connections that the listener ends, or has no more time for what is under way.
    pub(super) fn tell_all(&self, what: Told) {
        self.taken.iter().for_each(|place| place.tell(what));
    }

    /// Says whether there is no place for someone who came.
    pub(super) fn crowded(&self, crowded: bool) {
        self.crowded.set(crowded);
    }

    /// Waits until a connection has ended a request. Only heard while the listener is crowded.
    pub(super) async fn some_idle(&self) {
        self.idle.notified().await;
    }
}

impl Place {
    /// What the connection was told last. Wakes `task` when that changes.
    pub(super) fn listen(&self, task: &Waker) -> Told {
        self.state.task.register(task);
        self.told()
    }

    /// What the connection was told last.
    pub(super) fn told(&self) -> Told {
        match self.state.told.load(Ordering::Acquire) {
            0 => Told::Stay,
            1 => Told::Leave,
            2 => Told::End,
            _ => Told::Cut,
        }
    }

    fn tell(&self, what: Told) {
        self.state.told.fetch_max(what as u8, Ordering::Release);
        self.state.task.wake();
    }

    /// Whether a request is under way.
    pub(super) fn busy(&self) -> bool {
        self.state.requests.load(Ordering::Relaxed) > 0
    }

    /// The number of requests that have begun.
    pub(super) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }

    /// Whether it was taken beyond the limit.
    pub(super) fn beyond(&self) -> bool {
        self.state.beyond
    }

    /// Whether the listener is crowded.
    pub(super) fn crowded(&self) -> Crowded {
        self.state.crowded.clone()
    }

    /// Counts a request until what is returned is dropped.
    pub(super) fn request(&self) -> Busy {
        self.state.asked.fetch_add(1, Ordering::Relaxed);
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Whether the connection still has it: this side keeps one of two.
    fn held(&self) -> bool {
        Arc::strong_count(&self.state) > 1
    }
}

/// A request under way.
pub(super) struct Busy(Place);

impl Busy {
    /// The place of its connection.
    pub(super) fn place(&self) -> &Place {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let state = &self.0.state;
        state.requests.fetch_sub(1, Ordering::Relaxed);
        if state.crowded.get() {
            state.idle.notify_one();
        }
    }
}
