//! Which connection gives way when all that a listener grants are taken.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
use std::task::Waker;

use futures::task::AtomicWaker;
use tokio::sync::Notify;

use crate::crowded::Crowded;

/// Connections that are told to leave at the same time. More than one, so that clients that take their time to leave do
/// not hold up all that wait; few, so that no pool is emptied for one newcomer.
const LEAVING: usize = 16;
/// The same where one network has many that never asked anything: they are in no client's pool, and hundreds that come and
/// say nothing are gone before a probe behind them is late.
const LEAVING_UNHEARD: usize = 256;

/// The places of one listener, in the order in which they were taken.
///
/// Clients that open connections and ask nothing must not keep others out: while all places are taken and someone waits
/// for one, those without a request under way are ended. A request under way is never cut off.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Vec<Place>,
    /// So many are in `taken` when it is next looked for those that are free again.
    sweep_at: usize,
    changed: Arc<Notify>,
    crowded: Crowded,
    last_answers: Arc<AtomicBool>,
}

/// The place of one connection, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Place(Arc<State>);

#[derive(Debug)]
struct State {
    peer: SocketAddr,
    /// Taken beyond the limit.
    reserved: bool,
    doing: AtomicU8,
    /// Requests that have begun.
    asked: AtomicUsize,
    told: AtomicU8,
    /// The socket is to see whether its client is still there.
    look: AtomicBool,
    /// The connection's task.
    task: AtomicWaker,
    /// Told when a request begins or ends while the listener is crowded.
    changed: Arc<Notify>,
    crowded: Crowded,
    /// Each answer is the last on its connection.
    last_answers: Arc<AtomicBool>,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing: the client is to send a request.
    Waits = 0,
    /// Some of a head was read.
    Reads = 1,
    /// A request is under way.
    Serves = 2,
}

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Told {
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
    /// A place for a new connection; a `reserved` one is answered and gone at once.
    pub(crate) fn take(&mut self, peer: SocketAddr, reserved: bool) -> Place {
        if self.taken.len() >= self.sweep_at {
            self.taken.retain(Place::held);
            self.sweep_at = 2 * self.taken.len() + LEAVING;
        }
        let place = Place(Arc::new(State {
            peer,
            reserved,
            doing: AtomicU8::new(Doing::Waits as u8),
            asked: AtomicUsize::new(0),
            told: AtomicU8::new(Told::Stay as u8),
            look: AtomicBool::new(false),
            task: AtomicWaker::new(),
            changed: Arc::clone(&self.changed),
            crowded: self.crowded.clone(),
            last_answers: Arc::clone(&self.last_answers),
        }));
        self.taken.push(place.clone());
        place
    }

    /// Has some connections without a request leave, none of them reserved: of the network that has the most of them, first
    /// those that never asked anything, then the oldest. False when it takes too long to wait for those: all or nearly all
    /// are at work.
    pub(crate) fn free_some(&mut self) -> bool {
        self.taken.retain(Place::held);
        let ordinary = self.taken.iter().filter(|place| !place.reserved());
        let quarter = ordinary.clone().count().div_ceil(4);
        let idle = ordinary.filter(|place| place.doing() != Doing::Serves);
        // One that is told while its request arrives still answers it, and is not idle meanwhile.
        let (mut stay, mut leaving): (Vec<&Place>, Vec<&Place>) = idle.partition(|place| place.told() == Told::Stay);
        stay.sort_by_key(|place| place.asked() > 0);
        let mut networks: HashMap<IpAddr, VecDeque<(bool, usize, &Place)>> = HashMap::new();
        for (rank, place) in stay.into_iter().enumerate() {
            networks.entry(place.network()).or_default().push_back((place.asked() > 0, rank, place));
        }
        let most = |idle: &VecDeque<(bool, usize, &Place)>| match idle.front() {
            Some((false, ..)) if idle.len() > LEAVING => LEAVING_UNHEARD,
            Some(_) => LEAVING,
            None => 0,
        };
        while let Some(largest) = networks
            .values_mut()
            .filter(|idle| leaving.len() < quarter.min(most(idle)))
            .min_by_key(|idle| (Reverse(idle.len()), idle.front().map(|&(_, rank, _)| rank)))
            && let Some((_, _, place)) = largest.pop_front()
        {
            place.tell(Told::Leave);
            leaving.push(place);
        }
        // Those that wait for their next request are gone at once. The others take a moment, and who waits for a few of
        // them waits behind all that came before.
        let at_once = |place: &&Place| place.doing() == Doing::Waits && place.asked() > 0;
        leaving.len() >= quarter.clamp(1, LEAVING) || leaving.iter().any(at_once)
    }

    /// Has all reserved connections leave that have no request under way.
    pub(crate) fn free_reserved(&self) {
        let idle = self.taken.iter().filter(|place| place.reserved() && place.doing() != Doing::Serves);
        idle.for_each(|place| place.tell(Told::Leave));
    }

    /// Tells all connections that the listener ends, or has no more time for what is under way.
    pub(crate) fn tell_all(&self, what: Told) {
        self.taken.iter().for_each(|place| place.tell(what));
    }

    /// Has each connection end with its next answer. None is ended before: a client that gets no answer to what it sends
    /// cannot know whether to send it again.
    pub(crate) fn close_after_answers(&self) {
        self.last_answers.store(true, Relaxed);
    }

    /// Says whether there is no place for someone who came.
    pub(crate) fn crowded(&self, crowded: bool) {
        self.crowded.set(crowded);
    }

    /// Waits until a connection has begun or ended a request: [`Self::free_some`] may say something else then. Only heard
    /// while the listener is crowded.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Place {
    /// What the connection was told last. Wakes `task` when that changes.
    pub(crate) fn listen(&self, task: &Waker) -> Told {
        self.0.task.register(task);
        self.told()
    }

    /// What the connection was told last.
    pub(crate) fn told(&self) -> Told {
        match self.0.told.load(Acquire) {
            0 => Told::Stay,
            1 => Told::Leave,
            2 => Told::End,
            _ => Told::Cut,
        }
    }

    fn tell(&self, what: Told) {
        self.0.told.fetch_max(what as u8, Release);
        self.0.task.wake();
    }

    pub(crate) fn doing(&self) -> Doing {
        match self.0.doing.load(Relaxed) {
            0 => Doing::Waits,
            1 => Doing::Reads,
            _ => Doing::Serves,
        }
    }

    /// The number of requests that have begun.
    pub(crate) fn asked(&self) -> usize {
        self.0.asked.load(Relaxed)
    }

    /// Whether it was taken beyond the limit.
    pub(crate) fn reserved(&self) -> bool {
        self.0.reserved
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// Whether the connection is to end with its next answer.
    pub(crate) fn closes_after_answer(&self) -> bool {
        self.reserved() || self.told() != Told::Stay || self.0.last_answers.load(Relaxed)
    }

    /// Whom the connection counts for: an IPv6 client has all addresses of its /64.
    fn network(&self) -> IpAddr {
        match self.0.peer.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
            ip @ IpAddr::V4(_) => ip,
        }
    }

    /// Whether the listener is crowded.
    pub(crate) fn crowded(&self) -> &Crowded {
        &self.0.crowded
    }

    /// Some bytes were read.
    pub(crate) fn first_byte(&self) {
        let (waits, reads) = (Doing::Waits as u8, Doing::Reads as u8);
        let _ = self.0.doing.compare_exchange(waits, reads, Relaxed, Relaxed);
    }

    /// What was read was no part of a request.
    pub(crate) fn waits(&self) {
        self.0.doing.store(Doing::Waits as u8, Relaxed);
    }

    /// A request is under way until what is returned is dropped. HTTP/1.1 serves one at a time.
    pub(crate) fn request(&self) -> Busy {
        self.0.asked.fetch_add(1, Relaxed);
        self.0.doing.store(Doing::Serves as u8, Relaxed);
        self.tell_crowd();
        Busy(self.clone())
    }

    fn tell_crowd(&self) {
        if self.0.crowded.get() {
            self.0.changed.notify_one();
        }
    }

    /// Has the socket see whether its client is still there, when it is next flushed.
    pub(crate) fn look(&self) {
        self.0.look.store(true, Relaxed);
    }

    /// Whether [`Self::look`] was called since this was.
    pub(crate) fn takes_look(&self) -> bool {
        self.0.look.load(Relaxed) && self.0.look.swap(false, Relaxed)
    }

    /// Whether the connection still has it: this side keeps one of two.
    fn held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Busy(Place);

impl Busy {
    /// The place of its connection.
    pub(crate) fn place(&self) -> &Place {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.waits();
        self.0.tell_crowd();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn take(places: &mut Places, network: u8, count: usize) -> Vec<Place> {
        (0..count).map(|_| places.take(([10, 0, 0, network], 1).into(), false)).collect()
    }

    fn left(places: &[Place]) -> Vec<bool> {
        places.iter().map(|place| place.told() == Told::Leave).collect()
    }

    #[test]
    fn the_address_with_the_most_idle_connections_loses_one_and_a_smaller_one_none() {
        let mut places = Places::default();
        let few = take(&mut places, 1, 1);
        let many = take(&mut places, 2, 3);
        // The oldest of the many has asked something, the others have not.
        drop(many[0].request());
        assert!(places.free_some());
        assert_eq!((left(&few), left(&many)), (vec![false], vec![false, true, false]));
    }

    #[test]
    fn requests_under_way_are_no_idle_connections() {
        let mut places = Places::default();
        let working = take(&mut places, 1, 3);
        let busy: Vec<_> = working.iter().map(Place::request).collect();
        assert!(!places.free_some(), "all are at work");
        let idle = take(&mut places, 2, 1);
        assert!(places.free_some());
        assert_eq!((left(&working), left(&idle)), (vec![false; 3], vec![true]));
        drop(busy);
    }

    #[test]
    fn idle_connections_in_reserved_places_are_not_waited_for_and_leave_together() {
        let mut places = Places::default();
        let working = take(&mut places, 1, 2);
        let _busy: Vec<_> = working.iter().map(Place::request).collect();
        let reserved: Vec<_> = (0..3).map(|_| places.take(([10, 0, 0, 2], 1).into(), true)).collect();
        let answered = reserved[0].request();
        assert!(!places.free_some(), "all are at work");
        assert_eq!(left(&reserved), [false; 3]);
        places.free_reserved();
        assert_eq!((left(&working), left(&reserved)), (vec![false; 2], vec![false, true, true]));
        drop(answered);
    }

    #[test]
    fn a_few_that_never_asked_anything_hold_up_nobody_while_the_rest_works() {
        let mut places = Places::default();
        let all = take(&mut places, 1, 8);
        let mut busy: Vec<_> = all[1..].iter().map(Place::request).collect();
        assert!(!places.free_some(), "one of eight is not waited for");
        assert_eq!(left(&all[..2]), [true, false], "and leaves");
        busy.pop();
        assert!(places.free_some(), "one that has asked leaves at once");
    }

    #[test]
    fn hundreds_that_never_asked_anything_do_not_leave_by_the_dozen() {
        let mut places = Places::default();
        let silent = take(&mut places, 1, 400);
        let idle = take(&mut places, 2, 400);
        for place in &idle {
            drop(place.request());
        }
        assert!(places.free_some());
        let count = |places: &[Place]| left(places).into_iter().filter(|left| *left).count();
        assert_eq!((count(&silent), count(&idle)), (192, 8), "a quarter, of those that asked no more than otherwise");
    }

    #[test]
    fn no_pool_is_emptied_for_one_newcomer() {
        let mut places = Places::default();
        let idle = take(&mut places, 1, 400);
        for place in &idle {
            drop(place.request());
        }
        assert!(places.free_some());
        assert_eq!(left(&idle).into_iter().filter(|left| *left).count(), LEAVING);
    }

    #[test]
    fn one_that_is_told_to_leave_and_begins_a_request_does_not_hold_up_those_that_wait() {
        let mut places = Places::default();
        let place = take(&mut places, 1, 1).remove(0);
        places.crowded(true);
        assert!(places.free_some(), "it is to leave");
        assert!(places.changed().now_or_never().is_none());
        let _busy = place.request();
        assert!(places.changed().now_or_never().is_some(), "whoever waits for it looks again");
        assert!(!places.free_some(), "all are at work");
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let mut places = Places::default();
        let other = [places.take("[2001:db8:0:2::1]:1".parse().unwrap(), false)];
        let one: Vec<_> =
            (1..3).map(|host| places.take(format!("[2001:db8:0:1::{host}]:1").parse().unwrap(), false)).collect();
        places.free_some();
        assert_eq!((left(&other), left(&one)), (vec![false], vec![true, false]));
    }
}
