//! The state of one connection, which its task and the accept loop share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use portcullis_listener::Crowded;
use tokio::time::Instant;

/// A handle to one connection: its activity, and the instruction that it got last. Clones are handles to the same
/// connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<State>);

#[derive(Debug)]
struct State {
    peer: SocketAddr,
    accepted: Instant,
    crowded: Crowded,
    activity: AtomicU8,
    /// Requests that have begun.
    requests: AtomicUsize,
    /// When the last request ended, in nanoseconds after `accepted`.
    idle_since: AtomicU64,
    told: AtomicU8,
    /// The socket is to see whether its client is still there.
    look: AtomicBool,
    /// The connection's task.
    task: AtomicWaker,
}

/// The activity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The client is to send a request.
    Waits = 0,
    /// Some of a head was read.
    Reads = 1,
    /// A request is under way.
    Serves = 2,
}

/// An instruction to a connection. A later one in this order replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Told {
    /// Stay open.
    Stay = 0,
    /// Close with the next answer, and not before.
    LastAnswer = 1,
    /// Close at once, or with the answer to a request that is under way: a new connection needs the place.
    Leave = 2,
    /// The listener ends: as `Leave`, and a client that has connected has a second to send its request.
    End = 3,
    /// The listener has ended: answer a request under way with 503.
    Cut = 4,
    /// Close at once, whatever is under way.
    Close = 5,
}

impl Connection {
    /// A connection that was accepted now. `crowded` belongs to its listener.
    pub(crate) fn new(peer: SocketAddr, crowded: &Crowded) -> Self {
        Self(Arc::new(State {
            peer,
            accepted: Instant::now(),
            crowded: crowded.clone(),
            activity: AtomicU8::new(Activity::Waits as u8),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            told: AtomicU8::new(Told::Stay as u8),
            look: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }))
    }

    /// Returns the address of the client.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// Returns the flag of the listener.
    pub(crate) fn crowded(&self) -> &Crowded {
        &self.0.crowded
    }

    /// Returns the number of requests that have begun.
    pub(crate) fn requests(&self) -> usize {
        self.0.requests.load(Relaxed)
    }

    /// Returns when the connection was accepted or its last request ended; `None` while a request is under way. A client
    /// that has sent part of a head is idle.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let since = Duration::from_nanos(self.0.idle_since.load(Relaxed));
        (self.activity() != Activity::Serves).then(|| self.0.accepted + since)
    }

    /// Gives the connection an instruction. An earlier one in the order of [`Told`] than it has already changes nothing.
    pub(crate) fn tell(&self, what: Told) {
        self.0.told.fetch_max(what as u8, Release);
        self.0.task.wake();
    }

    /// Returns the instruction in force.
    pub(crate) fn told(&self) -> Told {
        match self.0.told.load(Acquire) {
            0 => Told::Stay,
            1 => Told::LastAnswer,
            2 => Told::Leave,
            3 => Told::End,
            4 => Told::Cut,
            _ => Told::Close,
        }
    }

    /// Returns the instruction in force, and wakes `task` when it changes.
    pub(crate) fn listen(&self, task: &Waker) -> Told {
        self.0.task.register(task);
        self.told()
    }

    pub(crate) fn activity(&self) -> Activity {
        match self.0.activity.load(Relaxed) {
            0 => Activity::Waits,
            1 => Activity::Reads,
            _ => Activity::Serves,
        }
    }

    /// Notes that some bytes were read.
    pub(crate) fn first_byte(&self) {
        let (waits, reads) = (Activity::Waits as u8, Activity::Reads as u8);
        let _ = self.0.activity.compare_exchange(waits, reads, Relaxed, Relaxed);
    }

    /// Notes that a request is under way until the result is dropped. HTTP/1.1 serves one at a time.
    pub(crate) fn request(&self) -> Busy {
        self.0.requests.fetch_add(1, Relaxed);
        self.0.activity.store(Activity::Serves as u8, Relaxed);
        Busy(self.clone())
    }

    /// Has the socket see whether its client is still there, when it is next flushed.
    pub(crate) fn look(&self) {
        self.0.look.store(true, Relaxed);
    }

    /// Returns whether [`Self::look`] was called since this was.
    pub(crate) fn takes_look(&self) -> bool {
        self.0.look.load(Relaxed) && self.0.look.swap(false, Relaxed)
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Busy(Connection);

impl Drop for Busy {
    fn drop(&mut self) {
        let state = &*self.0.0;
        let idle_since = u64::try_from(state.accepted.elapsed().as_nanos()).unwrap_or(u64::MAX);
        state.idle_since.store(idle_since, Relaxed);
        state.activity.store(Activity::Waits as u8, Relaxed);
    }
}
