//! The places of a listener: which client holds them, and which one gives one up for another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcp_middleware::client_network;
use mcp_store::{Bound, Client};
use portcullis_listener::Crowded;
use tokio::time::Instant;

use crate::connection::{Connection, Told};

/// Time for a new connection to send its first request before it gives way, and for one that gives way to be gone before
/// another one is asked.
const MOMENT: Duration = Duration::from_millis(100);
/// Time for a connection that is to leave to end in order: its client may read nothing.
const LEAVES: Duration = Duration::from_secs(1);
/// While so many connections are leaving for more than a moment, a new one does not wait for them.
const LEAVING: usize = 4;
/// Time in which a client that got 503 with `Retry-After: 1` asks again.
const ASKS_AGAIN: Duration = Duration::from_secs(2);
/// While so many connections, or a quarter of all, are about to have had their moment, a new one waits for them.
const AWAITED: usize = 16;

/// The places of one listener. Clones share them.
///
/// While all are taken and a new connection waits, the client that holds most gives one up, in the order of [`Given`].
/// A client is a network until a request of the connection has [logged in](Place::counts_for). A call under way is never
/// cut off, and streams never hold the last quarter of the places: for one more, the client that holds most streams loses
/// its oldest.
#[derive(Clone, Debug)]
pub struct Places(Arc<Table>);

#[derive(Debug)]
struct Table {
    state: Mutex<State>,
    crowded: Crowded,
    clients: RandomState,
    /// The most streams.
    bound: usize,
    streams: AtomicUsize,
    /// The number of the next stream.
    number: AtomicU64,
    /// The most bytes of heads.
    head_bound: usize,
    given: [AtomicU64; Given::ALL.len()],
}

#[derive(Debug, Default)]
struct State {
    /// By the order in which they were taken.
    taken: BTreeMap<u64, Place>,
    next: u64,
    /// When a connection was asked to give way for the one that waits.
    asked: Option<Instant>,
    /// The numbers of the connections that were told to leave, and when.
    leaving: VecDeque<(Instant, u64)>,
    /// The clients that hold more than their share, since calls hold all places and someone came.
    over: HashSet<u64, BuildHasherDefault<AsIs>>,
    came: Option<Instant>,
    /// The bytes of heads.
    head_bytes: usize,
    /// The part of them whose connections are about to end.
    head_bytes_going: usize,
}

/// The kinds of what a client gives up, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Given {
    /// A connection without a request under way: first those that never sent one, then the one that has been idle longest.
    Idle = 0,
    /// The oldest stream that its client can resume.
    Stream = 1,
    /// The oldest stream that is its client's session, and the session with it.
    Session = 2,
    /// The longest head that has begun to arrive, and the connection with it: heads hold too many bytes.
    Head = 3,
}

impl Given {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Stream, Self::Session, Self::Head];

    /// Returns the name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Stream => "stream",
            Self::Session => "session",
            Self::Head => "head",
        }
    }
}

/// The use that is made of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Open connections.
    pub open: usize,
    /// Connections with a request under way, streams included.
    pub at_work: usize,
    /// Streams.
    pub streams: usize,
}

/// The place of one connection.
#[derive(Clone, Debug)]
pub struct Place(Arc<Held>);

#[derive(Debug)]
struct Held {
    number: u64,
    places: Places,
    connection: Connection,
    /// The hash of the network that it comes from.
    network: u64,
    since: Instant,
    /// Taken beyond the limit.
    reserved: bool,
    /// The hash of the client that it counts for.
    client: AtomicU64,
    /// The [`Given`] of the stream under way, or 0.
    stream: AtomicU8,
    /// The number of the stream among all.
    began: AtomicU64,
    /// The bytes of its longest head that count: the connection keeps its buffer.
    head: AtomicUsize,
    /// Whether a head that counts has begun and not ended.
    head_arrives: AtomicBool,
    /// Whether the connection ends for them.
    ends_for_head: AtomicBool,
}

/// A stream under way on the connection of a [`Place`], until this is dropped.
#[derive(Debug)]
pub struct Streaming(Place);

/// Whether there is room for more of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Now,
    /// When another connection has ended.
    Later,
    /// The connection is to end.
    Never,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    place: Place,
}

/// The thing that a place can give up: the kind, whether a request was ever sent, and the age.
type Gift = (Given, bool, Age);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Idle(Instant),
    Stream(u64),
    Head(Reverse<usize>),
}

/// Hashes what is a hash already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Places {
    /// So many places, and as many bytes of heads.
    pub(crate) fn new(count: usize, head_bound: usize) -> Self {
        Self(Arc::new(Table {
            state: Mutex::default(),
            crowded: Crowded::default(),
            clients: RandomState::new(),
            bound: count - count / 4,
            streams: AtomicUsize::new(0),
            number: AtomicU64::new(0),
            head_bound,
            given: Default::default(),
        }))
    }

    /// Returns the use that is made of them now.
    pub fn usage(&self) -> Use {
        let state = self.state();
        let at_work = state.taken.values().filter(|place| place.0.connection.idle_since().is_none()).count();
        Use { open: state.taken.len(), at_work, streams: self.0.streams.load(Relaxed) }
    }

    /// Returns the bound on the bytes of heads.
    pub fn heads(&self) -> Bound {
        Bound { name: "heads", used: self.state().head_bytes, limit: self.0.head_bound }
    }

    /// Returns how many of a kind were given up.
    pub fn given(&self, kind: Given) -> u64 {
        self.0.given[kind as usize].load(Relaxed)
    }

    pub(crate) fn crowded(&self) -> &Crowded {
        &self.0.crowded
    }

    /// Takes a place for a new connection; a `reserved` one is answered and gone at once.
    pub(crate) fn take(&self, peer: SocketAddr, reserved: bool) -> Taken {
        let connection = Connection::new(peer, &self.0.crowded);
        if reserved {
            connection.tell(Told::LastAnswer);
        }
        let client = self.network(peer);
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let place = Place(Arc::new(Held {
            number,
            places: self.clone(),
            connection,
            network: client,
            since: Instant::now(),
            reserved,
            client: client.into(),
            stream: AtomicU8::new(0),
            began: AtomicU64::new(0),
            head: AtomicUsize::new(0),
            head_arrives: AtomicBool::new(false),
            ends_for_head: AtomicBool::new(false),
        }));
        state.taken.insert(number, place.clone());
        if !reserved {
            state.asked = None;
            state.over.clear();
        }
        Taken { place }
    }

    /// Has one connection give way for one from `peer`: of the client that holds the most places. Returns whether it is
    /// worth waiting: all or nearly all are at work otherwise.
    pub(crate) fn give(&self, peer: SocketAddr) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        let waits = state.close_late(now) < LEAVING;
        if state.asked.is_some_and(|asked| now < asked + MOMENT) {
            return waits;
        }
        let network = self.network(peer);
        let of_network = state.taken.values().filter(|place| place.0.network == network).count();
        let ordinary = || state.taken.values().filter(|place| !place.0.reserved);
        let is_new = |gift: &Gift| matches!(gift, (_, false, Age::Idle(since)) if now < *since + MOMENT);
        let may_go = |place: &Place| place.gift().filter(|gift| !is_new(gift));
        let held = Sizes::of(ordinary().map(|place| (place.client(), 1)));
        // A client that holds more takes nothing from one that holds less.
        let gives = |place: &&Place| {
            let own = held.of.get(&place.client()).copied().unwrap_or(0);
            place.0.network == network || own > of_network
        };
        let offered = ordinary().map(|place| (place.client(), 1, may_go(place).filter(|_| gives(&place)), place));
        if let Some((gift, place)) = giver(offered) {
            let place = place.clone();
            self.tell(&mut state, gift, &place);
            (state.asked, state.over) = (Some(now), HashSet::default());
            return waits;
        }
        let new = ordinary().filter(|place| place.gift().is_some_and(|gift| is_new(&gift)) && gives(place)).count();
        let over =
            held.of.iter().filter(|(_, size)| **size * held.of.len() > held.all).map(|(client, _)| *client).collect();
        let awaited = new >= held.all.div_ceil(4).clamp(1, AWAITED);
        (state.over, state.came) = (over, Some(now));
        awaited
    }

    /// Has a stream end where there are too many: the oldest of the client that holds most.
    fn bound_streams(&self) {
        let mut state = self.state();
        state.close_late(Instant::now());
        let streams = state.taken.values().filter_map(|place| {
            let gift = place.gift().filter(|(kind, ..)| *kind != Given::Idle)?;
            Some((place.client(), 1, Some(gift), place))
        });
        if streams.clone().count() > self.0.bound
            && let Some((gift, place)) = giver(streams).map(|(gift, place)| (gift, place.clone()))
        {
            self.tell(&mut state, gift, &place);
        }
    }

    fn tell(&self, state: &mut State, (kind, ..): Gift, place: &Place) {
        place.0.connection.tell(Told::Leave);
        state.leaving.push_back((Instant::now(), place.0.number));
        self.0.given[kind as usize].fetch_add(1, Relaxed);
    }

    fn network(&self, peer: SocketAddr) -> u64 {
        self.0.clients.hash_one(Client::Network(client_network(Some(peer))))
    }

    /// Has all reserved connections leave that had their moment, or else the older half of the client that holds most of
    /// them: a crowd of one client does not keep the probes of others waiting.
    pub(crate) fn give_reserved(&self) {
        let state = self.state();
        let reserved = || state.taken.values().filter(|place| place.0.reserved);
        let late: Vec<_> = reserved().filter(|place| place.0.since.elapsed() >= MOMENT).collect();
        let held = Sizes::of(reserved().map(|place| (place.client(), 1)));
        let most = held.of.iter().max_by_key(|(_, held)| **held).filter(|_| late.is_empty());
        let crowd = most
            .into_iter()
            .flat_map(|(client, held)| reserved().filter(move |place| place.client() == *client).take(held / 2));
        late.iter().copied().chain(crowd).for_each(|place| place.0.connection.tell(Told::Leave));
    }

    pub(crate) fn tell_all(&self, what: Told) {
        self.state().taken.values().for_each(|place| place.0.connection.tell(what));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Closes the connections that were told to leave and did not. Returns how many have been leaving for more than a moment.
    fn close_late(&mut self, now: Instant) -> usize {
        while let Some((_, number)) = self.leaving.pop_front_if(|(told, _)| now >= *told + LEAVES) {
            if let Some(place) = self.taken.get(&number) {
                place.0.connection.tell(Told::Close);
            }
        }
        let slow =
            self.leaving.iter().filter(|(told, number)| now >= *told + MOMENT && self.taken.contains_key(number));
        slow.count()
    }
}

/// Returns which place gives way, of places by client and size: of the client that holds most among those that can give,
/// the first by [`Gift`]. Streams are safe where their client holds less than all do on average.
fn giver<T>(places: impl Iterator<Item = (u64, usize, Option<Gift>, T)> + Clone) -> Option<(Gift, T)> {
    let held = Sizes::of(places.clone().map(|(client, size, ..)| (client, size)));
    let gifts = places.filter_map(|(client, _, gift, place)| {
        let (gift, held_by_it) = (gift?, *held.of.get(&client)?);
        let gives = gift.0 == Given::Idle || held_by_it * held.of.len() >= held.all;
        gives.then_some((Reverse(held_by_it), gift, place))
    });
    gifts.min_by_key(|(most, gift, _)| (*most, *gift)).map(|(_, gift, place)| (gift, place))
}

/// The sum that each client holds, and all together.
#[derive(Default)]
struct Sizes {
    of: HashMap<u64, usize, BuildHasherDefault<AsIs>>,
    all: usize,
}

impl Sizes {
    fn of(places: impl Iterator<Item = (u64, usize)>) -> Self {
        let mut sizes = Self::default();
        for (client, size) in places {
            *sizes.of.entry(client).or_default() += size;
            sizes.all += size;
        }
        sizes
    }
}

impl Place {
    /// Counts the connection for `client` from now on: the principal, once a request has logged in.
    pub fn counts_for(&self, client: &Client) {
        self.0.client.store(self.0.places.0.clients.hash_one(client), Relaxed);
    }

    /// Says that the request under way is a stream of this kind: it [may have to end](Streaming::has_to_end). Call it when
    /// it is known who the connection counts for.
    pub fn streams(&self, kind: Given) -> Streaming {
        let table = &self.0.places.0;
        self.0.began.store(table.number.fetch_add(1, Relaxed), Relaxed);
        self.0.stream.store(kind as u8, Relaxed);
        let streaming = Streaming(self.clone());
        if table.streams.fetch_add(1, Relaxed) >= table.bound {
            self.0.places.bound_streams();
        }
        streaming
    }

    /// Notes that the head that arrived is whole. Its bytes count for as long as the connection keeps its buffer.
    pub(crate) fn has_head(&self) {
        self.0.head_arrives.store(false, Relaxed);
    }

    /// Notes the bytes of a head that has begun to arrive. Where all heads hold too many, the connection with the longest
    /// of the client whose heads hold most ends, unless a call is under way there; until it has ended, further heads of that client end as
    /// well.
    pub(crate) fn holds_head(&self, bytes: usize) -> Room {
        let held = &*self.0;
        held.head_arrives.store(true, Relaxed);
        let (bound, mut state) = (held.places.0.head_bound, held.places.state());
        state.close_late(Instant::now());
        let bytes = bytes.max(held.head.load(Relaxed));
        let before = held.head.swap(bytes, Relaxed);
        state.head_bytes = state.head_bytes - before + bytes;
        if held.ends_for_head.load(Relaxed) {
            state.head_bytes_going = state.head_bytes_going - before + bytes;
        } else if bytes > before && state.head_bytes > bound {
            let heads = state.taken.values().filter_map(|place| {
                let bytes = place.0.head.load(Relaxed);
                let gift = (Given::Head, true, Age::Head(Reverse(bytes)));
                let may_go = || place.0.head_arrives.load(Relaxed) || place.gift().is_some();
                let counts = bytes > 0 && !place.0.ends_for_head.load(Relaxed) && may_go();
                counts.then_some((place.client(), bytes, Some(gift), place))
            });
            let others_end = state.head_bytes - state.head_bytes_going <= bound;
            let ends = match giver(heads) {
                Some((gift, place)) if !others_end => Some((gift, place.clone())),
                Some((gift, place)) if place.client() == self.client() => Some((gift, self.clone())),
                _ => None,
            };
            if let Some((gift, place)) = ends {
                place.0.ends_for_head.store(true, Relaxed);
                state.head_bytes_going += place.0.head.load(Relaxed);
                held.places.tell(&mut state, gift, &place);
            }
        }
        match (held.ends_for_head.load(Relaxed), state.head_bytes <= bound) {
            (true, _) => Room::Never,
            (false, true) => Room::Now,
            (false, false) => Room::Later,
        }
    }

    /// Returns whether its client gets no further request here: calls hold all places, and most of them its own. The
    /// connection closes with the answer then, for those who wait.
    pub(crate) fn exceeds_share(&self) -> bool {
        let places = &self.0.places;
        let exceeds = places.0.crowded.get() && {
            let state = places.state();
            state.came.is_some_and(|came| came.elapsed() < ASKS_AGAIN) && state.over.contains(&self.client())
        };
        if exceeds {
            self.0.connection.tell(Told::LastAnswer);
        }
        exceeds
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Whether it was taken beyond the limit.
    pub(crate) fn is_reserved(&self) -> bool {
        self.0.reserved
    }

    fn client(&self) -> u64 {
        self.0.client.load(Relaxed)
    }

    /// The thing that it can give up now, unless it was asked to.
    fn gift(&self) -> Option<Gift> {
        let connection = &self.0.connection;
        if connection.told() >= Told::Leave {
            return None;
        }
        if let Some(since) = connection.idle_since() {
            return Some((Given::Idle, connection.requests() > 0, Age::Idle(since)));
        }
        let stream = self.0.stream.load(Relaxed);
        let kind = Given::ALL.into_iter().find(|kind| *kind != Given::Idle && *kind as u8 == stream)?;
        Some((kind, true, Age::Stream(self.0.began.load(Relaxed))))
    }
}

impl Streaming {
    /// Returns whether the stream is to end, because another client needs the place: end its body, in order. The task of
    /// the connection is woken when this changes, and polls the body of the answer.
    pub fn has_to_end(&self) -> bool {
        self.0.0.connection.told() >= Told::Leave
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.0.stream.store(0, Relaxed);
        self.0.0.places.0.streams.fetch_sub(1, Relaxed);
    }
}

impl Taken {
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.place.0.places.state();
        state.taken.remove(&self.place.0.number);
        let bytes = self.place.0.head.load(Relaxed);
        state.head_bytes -= bytes;
        if self.place.0.ends_for_head.load(Relaxed) {
            state.head_bytes_going -= bytes;
        }
    }
}

#[cfg(test)]
mod tests;
