//! The places of a listener: who holds them, and who gives one up for a new connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcp_middleware::client_network;
use mcp_store::Client;
use portcullis_listener::{Connection, Crowded, Told};
use tokio::time::Instant;

/// Time for a new connection to send its first request before it gives way, and for one that gives way to be gone before
/// another one is asked.
const MOMENT: Duration = Duration::from_millis(100);
/// While so many connections, or a quarter of all, are about to have had their moment, a new one waits for them.
const AWAITED: usize = 16;

/// The places of one listener. Clones share them.
///
/// Clients that open connections and ask nothing must not keep others out: while all places are taken and someone waits
/// for one, those without a request under way are ended. A request under way is never cut off.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    state: Mutex<State>,
    crowded: Crowded,
    clients: RandomState,
}

#[derive(Debug, Default)]
struct State {
    /// By the order in which they were taken.
    taken: BTreeMap<u64, Place>,
    next: u64,
    /// When a connection was asked to give way for the one that waits.
    asked: Option<Instant>,
}

/// The place of one connection.
#[derive(Clone, Debug)]
pub struct Place(Arc<Held>);

#[derive(Debug)]
struct Held {
    connection: Connection,
    /// Taken beyond the limit.
    reserved: bool,
    /// The hash of the client that it counts for.
    client: AtomicU64,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    places: Places,
    number: u64,
    place: Place,
}

/// What a place can give up, in the order in which a client's are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gift {
    /// A connection that never sent a request.
    Unasked(Instant),
    Idle(Instant),
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
    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.state().taken.len()
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
        let client = self.0.clients.hash_one(Client::Network(client_network(Some(peer))));
        let place = Place(Arc::new(Held { connection, reserved, client: client.into() }));
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.taken.insert(number, place.clone());
        if !reserved {
            state.asked = None;
        }
        Taken { places: self.clone(), number, place }
    }

    /// Has one connection give way: of the client that holds the most places. Returns whether it is worth waiting: all or
    /// nearly all are at work otherwise.
    pub(crate) fn give(&self) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        if state.asked.is_some_and(|asked| now < asked + MOMENT) {
            return true;
        }
        let ordinary = || state.taken.values().filter(|place| !place.0.reserved);
        let is_new = |gift: &Gift| matches!(gift, Gift::Unasked(since) if now < *since + MOMENT);
        let may_go = |place: &Place| place.gift().filter(|gift| !is_new(gift));
        if let Some(place) = giver(ordinary().map(|place| (place.client(), may_go(place), place))) {
            place.0.connection.tell(Told::Leave);
            state.asked = Some(now);
            return true;
        }
        let new = ordinary().filter(|place| place.gift().is_some()).count();
        new >= ordinary().count().div_ceil(4).clamp(1, AWAITED)
    }

    /// Has all reserved connections leave that had their moment and have no request under way.
    pub(crate) fn give_reserved(&self) {
        let state = self.state();
        let idle = state.taken.values().filter(|place| {
            place.0.reserved && place.0.connection.idle_since().is_some_and(|since| since.elapsed() >= MOMENT)
        });
        idle.for_each(|place| place.0.connection.tell(Told::Leave));
    }

    pub(crate) fn tell_all(&self, what: Told) {
        self.state().taken.values().for_each(|place| place.0.connection.tell(what));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns which place gives way: of those of the client that holds most among all that can give, the first by [`Gift`].
fn giver<T>(places: impl Iterator<Item = (u64, Option<Gift>, T)> + Clone) -> Option<T> {
    let mut held: HashMap<u64, usize, BuildHasherDefault<AsIs>> = HashMap::default();
    for (client, ..) in places.clone() {
        *held.entry(client).or_default() += 1;
    }
    let gifts = places.filter_map(|(client, gift, place)| Some((Reverse(held.get(&client)), gift?, place)));
    gifts.min_by_key(|(most, gift, _)| (*most, *gift)).map(|(.., place)| place)
}

impl Place {
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

    /// What it can give up now, unless it was asked to.
    fn gift(&self) -> Option<Gift> {
        let connection = &self.0.connection;
        if connection.told() >= Told::Leave {
            return None;
        }
        let since = connection.idle_since()?;
        Some(if connection.requests() == 0 { Gift::Unasked(since) } else { Gift::Idle(since) })
    }
}

impl Taken {
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.state().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of clients, by what each can give: `n` never asked, `i` idle, `-` at work; with the place that gives way.
    #[test]
    fn the_client_that_holds_most_gives_first_what_it_uses_least() {
        let then = |age: usize| Instant::now() + Duration::from_hours(1) - Duration::from_secs(age as u64);
        for (places, gives) in [
            // The oldest of the larger one, and none of the smaller one, which is older still.
            (&[(1, 'i', 9), (2, 'i', 3), (2, 'i', 5)][..], Some(2)),
            (&[(1, 'n', 9), (2, 'i', 3), (2, '-', 5)], Some(1)),
            // One that never asked goes before one that is older.
            (&[(1, 'i', 9), (1, 'n', 3), (1, 'n', 5)], Some(2)),
            // One that has nothing to give is passed over, however much it holds.
            (&[(1, '-', 9), (1, '-', 9), (2, 'i', 3)], Some(2)),
            (&[(1, '-', 9), (2, '-', 9)], None),
        ] {
            let gift = |kind: char, age: usize| match kind {
                'n' => Some(Gift::Unasked(then(age))),
                'i' => Some(Gift::Idle(then(age))),
                _ => None,
            };
            let given =
                giver(places.iter().enumerate().map(|(at, (client, kind, age))| (*client, gift(*kind, *age), at)));
            assert_eq!(given, gives, "{places:?}");
        }
    }

    fn take(places: &Places, peer: &str, count: usize) -> Vec<Taken> {
        (0..count).map(|_| places.take(peer.parse().unwrap(), false)).collect()
    }

    fn asked(places: &[Taken]) -> Vec<bool> {
        places.iter().map(|place| place.place.0.connection.told() == Told::Leave).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_has_its_moment_and_then_one_leaves_at_a_time() {
        let places = Places::default();
        let all = take(&places, "10.0.0.1:1", 3);
        assert!(places.give(), "they are waited for");
        assert_eq!(asked(&all), [false; 3]);
        tokio::time::advance(MOMENT).await;
        for _ in 0..2 {
            assert!(places.give());
            assert_eq!(asked(&all), [true, false, false]);
        }
        tokio::time::advance(MOMENT).await;
        assert!(places.give(), "one that stays is not waited for");
        assert_eq!(asked(&all), [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn reserved_places_are_left_together_and_never_waited_for() {
        let places = Places::default();
        let reserved: Vec<_> = (0..3).map(|_| places.take(([10, 0, 0, 2], 1).into(), true)).collect();
        tokio::time::advance(MOMENT).await;
        assert!(!places.give());
        assert_eq!(asked(&reserved), [false; 3]);
        places.give_reserved();
        assert_eq!(asked(&reserved), [true; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_ipv6_network_count_together() {
        let places = Places::default();
        let other = take(&places, "[2001:db8:0:2::1]:1", 1);
        let one: Vec<_> =
            ["1", "2"].iter().flat_map(|host| take(&places, &format!("[2001:db8:0:1::{host}]:1"), 1)).collect();
        tokio::time::advance(MOMENT).await;
        places.give();
        assert_eq!((asked(&other), asked(&one)), (vec![false], vec![true, false]));
    }
}
