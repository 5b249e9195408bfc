//! A bounded table of sessions that forgets what nobody uses. Time is a parameter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Client, Principal, SessionRecord};

/// Expired sessions that one insertion removes at most: more than it adds, and few enough not to keep others waiting.
const EXPIRED_AT_ONCE: usize = 16;
/// A session that was used less than this ago is not moved to the end of the order again.
const GRAIN: Duration = Duration::from_secs(1);

/// The bounds of a [`MemorySessions`](crate::MemorySessions).
///
/// When it is full, the client whose sessions take the most room loses the one of them that it has not used for longest.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a session lives without being used.
    pub ttl: Duration,
    /// How many sessions there are. Default: 10,000.
    pub max_sessions: usize,
    /// How many bytes they take, about. Default: 24 MiB.
    pub max_bytes: usize,
}

impl Limits {
    /// The defaults, for sessions that live for `ttl` without being used.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, max_sessions: 10_000, max_bytes: 24 << 20 }
    }
}

/// The sessions that are gone with an insertion.
#[derive(Debug, Default)]
pub struct Removed {
    /// Nobody has used them for as long as a session lives.
    pub expired: Vec<Arc<SessionRecord>>,
    /// They made room for the new one, or it has the id of one of them.
    pub evicted: Vec<Arc<SessionRecord>>,
}

/// The sessions by id, in the order of their last use, and the clients in the order of what they hold.
#[derive(Debug)]
pub(crate) struct Table {
    limits: Limits,
    sessions: HashMap<Arc<str>, Entry>,
    /// By the position that the last use gave; all live equally long, so this is the order of expiry too.
    order: BTreeMap<u64, Arc<str>>,
    clients: HashMap<Client, Holding>,
    heaviest: BTreeSet<(usize, Client)>,
    bytes: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    record: Arc<SessionRecord>,
    client: Client,
    position: u64,
    used: Instant,
}

/// The sessions of one client.
#[derive(Debug, Default)]
struct Holding {
    bytes: usize,
    /// Its sessions' positions: the first is the one unused for longest.
    positions: BTreeSet<u64>,
}

impl Table {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            sessions: HashMap::new(),
            order: BTreeMap::new(),
            clients: HashMap::new(),
            heaviest: BTreeSet::new(),
            bytes: 0,
            next: 0,
        }
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.limits.ttl
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Adds a session and returns those that went: expired ones and, in a full table, the oldest ones of the heaviest clients. `None`, and
    /// nothing changes, where the id is that of a living session of somebody else.
    pub(crate) fn insert(&mut self, record: SessionRecord, client: &Client, now: Instant) -> Option<Removed> {
        let taken = |entry: &Entry| entry.record.principal != record.principal && !self.expired(entry, now);
        if self.sessions.get(&*record.id).is_some_and(taken) {
            return None;
        }
        let mut gone = Removed::default();
        while gone.expired.len() < EXPIRED_AT_ONCE
            && let Some(id) = self.order.first_key_value().map(|(_, id)| Arc::clone(id))
            && self.sessions.get(&id).is_none_or(|entry| self.expired(entry, now))
        {
            gone.expired.extend(self.remove(&id));
        }
        let id: Arc<str> = (&*record.id).into();
        // The server may give out an id again, to the same one.
        gone.evicted.extend(self.remove(&id));
        let weight = record.weight();
        while self.sessions.len() >= self.limits.max_sessions.max(1) || self.bytes + weight > self.limits.max_bytes {
            // The newcomer counts: who opens more than all others makes room for it.
            let Some(oldest) = self.oldest_of_heaviest(client, weight) else { break };
            gone.evicted.extend(self.remove(&oldest));
        }
        let position = self.position();
        self.order.insert(position, Arc::clone(&id));
        self.hold(client, |holding| {
            holding.bytes += weight;
            holding.positions.insert(position);
        });
        self.bytes += weight;
        self.sessions.insert(id, Entry { record: Arc::new(record), client: client.clone(), position, used: now });
        Some(gone)
    }

    /// The session, renewed, when it belongs to `principal` and has not expired.
    pub(crate) fn load(&mut self, id: &str, principal: &Principal, now: Instant) -> Option<Arc<SessionRecord>> {
        // An expired one stays until an insertion reports it as gone.
        let entry = self.sessions.get(id).filter(|entry| !self.expired(entry, now))?;
        if entry.record.principal != *principal {
            return None;
        }
        let record = Arc::clone(&entry.record);
        if now.duration_since(entry.used) >= GRAIN.min(self.limits.ttl / 8) {
            self.renew(id, now);
        }
        Some(record)
    }

    /// Puts `next` in place of `current` and returns what is there then; `None` when the session is gone.
    pub(crate) fn replace(
        &mut self,
        current: &SessionRecord,
        next: SessionRecord,
        now: Instant,
    ) -> Option<Arc<SessionRecord>> {
        let found = self.load(&next.id, &next.principal, now)?;
        if *found != *current {
            return Some(found);
        }
        let entry = self.sessions.get_mut(&*next.id)?;
        let (old, new) = (found.weight(), next.weight());
        let next = Arc::new(next);
        entry.record = Arc::clone(&next);
        let client = entry.client.clone();
        self.bytes = self.bytes - old + new;
        self.hold(&client, |holding| holding.bytes = holding.bytes - old + new);
        Some(next)
    }

    pub(crate) fn remove_owned(&mut self, id: &str, principal: &Principal) -> bool {
        let owned = self.sessions.get(id).is_some_and(|entry| entry.record.principal == *principal);
        owned && self.remove(id).is_some()
    }

    fn expired(&self, entry: &Entry, now: Instant) -> bool {
        now.duration_since(entry.used) >= self.limits.ttl
    }

    fn oldest_of_heaviest(&self, newcomer: &Client, weight: usize) -> Option<Arc<str>> {
        let (most, heaviest) = self.heaviest.last()?;
        let own = self.clients.get(newcomer).filter(|holding| holding.bytes + weight >= *most);
        let holding = own.or_else(|| self.clients.get(heaviest))?;
        self.order.get(holding.positions.first()?).cloned()
    }

    fn renew(&mut self, id: &str, now: Instant) {
        let position = self.position();
        let Some(entry) = self.sessions.get_mut(id) else { return };
        let old = std::mem::replace(&mut entry.position, position);
        entry.used = now;
        if let Some(holding) = self.clients.get_mut(&entry.client) {
            holding.positions.remove(&old);
            holding.positions.insert(position);
        }
        if let Some(id) = self.order.remove(&old) {
            self.order.insert(position, id);
        }
    }

    fn remove(&mut self, id: &str) -> Option<Arc<SessionRecord>> {
        let Entry { record, client, position, .. } = self.sessions.remove(id)?;
        self.order.remove(&position);
        let weight = record.weight();
        self.bytes -= weight;
        self.hold(&client, |holding| {
            holding.bytes -= weight;
            holding.positions.remove(&position);
        });
        Some(record)
    }

    /// Changes what `client` holds and keeps its place among the clients true.
    fn hold(&mut self, client: &Client, change: impl FnOnce(&mut Holding)) {
        let holding = self.clients.entry(client.clone()).or_default();
        let before = holding.bytes;
        change(holding);
        let (after, gone) = (holding.bytes, holding.positions.is_empty());
        self.heaviest.remove(&(before, client.clone()));
        if gone {
            self.clients.remove(client);
        } else {
            self.heaviest.insert((after, client.clone()));
        }
    }

    fn position(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(100);

    struct Fixture {
        table: Table,
        start: Instant,
    }

    impl Fixture {
        fn new(max_sessions: usize, max_bytes: usize) -> Self {
            Self { table: Table::new(Limits { ttl: TTL, max_sessions, max_bytes }), start: Instant::now() }
        }

        fn insert(&mut self, id: &str, client: u8, at: u64) -> Vec<String> {
            self.insert_record(SessionRecord::new(id, Principal::unauthenticated()), client, at)
        }

        fn insert_record(&mut self, record: SessionRecord, client: u8, at: u64) -> Vec<String> {
            let client = Client::Network([192, 0, 2, client].into());
            let gone = self.table.insert(record, &client, self.start + Duration::from_secs(at)).unwrap();
            [gone.expired, gone.evicted].concat().iter().map(|record| record.id.to_string()).collect()
        }

        fn lives(&mut self, id: &str, at: u64) -> bool {
            let now = self.start + Duration::from_secs(at);
            self.table.load(id, &Principal::unauthenticated(), now).is_some()
        }
    }

    #[test]
    fn a_session_lives_as_long_as_it_is_used_and_no_longer() {
        let mut fixture = Fixture::new(8, 1 << 20);
        fixture.insert("a", 1, 0);
        assert!(fixture.lives("a", 50));
        assert!(fixture.lives("a", 149), "use renewed it");
        assert!(!fixture.lives("a", 249));
        assert_eq!(fixture.insert("b", 1, 249), ["a"]);
    }

    #[test]
    fn expired_sessions_go_with_the_next_ones_and_nothing_is_left_of_them() {
        let mut fixture = Fixture::new(1000, 1 << 20);
        for n in 0..40 {
            fixture.insert(&format!("old{n}"), 1, 0);
        }
        let gone: usize = (0..3).map(|n| fixture.insert(&format!("new{n}"), 2, 100).len()).sum();
        assert_eq!((gone, fixture.table.len()), (40, 3));
        assert_eq!((fixture.table.order.len(), fixture.table.clients.len(), fixture.table.heaviest.len()), (3, 1, 1));
    }

    #[test]
    fn a_client_that_opens_sessions_without_end_does_not_evict_those_of_others() {
        let mut fixture = Fixture::new(100, 1 << 20);
        for n in 0..10 {
            fixture.insert(&format!("quiet{n}"), 1, 0);
        }
        for n in 0..10_000_u32 {
            let gone = fixture.insert(&format!("loud{n}"), 2, 1);
            assert!(gone.iter().all(|id| id.starts_with("loud")), "{gone:?}");
        }
        assert!((0..10).all(|n| fixture.lives(&format!("quiet{n}"), 2)));
        assert!(fixture.lives("loud9999", 2) && fixture.lives("loud9910", 2) && !fixture.lives("loud9909", 2));
        // A third one finds room at the expense of the loudest.
        assert_eq!(
            fixture.insert("third", 3, 3),
            ["loud9911"],
            "the first of the loud ones that was not looked at since"
        );
    }

    #[test]
    fn large_handshakes_do_not_take_more_than_the_bytes_that_there_are() {
        let mut fixture = Fixture::new(1000, 64 << 10);
        fixture.insert("quiet", 1, 0);
        for n in 0..100 {
            let mut record = SessionRecord::new(&format!("fat{n}"), Principal::unauthenticated());
            record.handshake = Some("x".repeat(8 << 10).into());
            fixture.insert_record(record, 2, 1);
            assert!(fixture.table.bytes <= 64 << 10);
        }
        assert!(fixture.lives("quiet", 2) && fixture.lives("fat99", 2) && !fixture.lives("fat0", 2));
    }

    #[test]
    fn the_session_of_another_principal_is_neither_found_nor_renewed_nor_removed_nor_replaced() {
        let (own, other) = (Principal::new("i", "a"), Principal::new("i", "b"));
        let mut table = Table::new(Limits::new(TTL));
        let (start, client) = (Instant::now(), Client::Principal(own.clone()));
        table.insert(SessionRecord::new("a", own.clone()), &client, start).unwrap();
        assert!(table.load("a", &other, start + TTL / 2).is_none());
        let stolen = SessionRecord::new("a", other.clone());
        assert!(table.insert(stolen.clone(), &Client::Principal(other.clone()), start + TTL / 2).is_none());
        assert!(!table.remove_owned("a", &other));
        assert!(table.replace(&stolen, stolen.clone(), start).is_none());
        assert_eq!(table.load("a", &own, start).unwrap().principal, own);
        assert!(table.load("a", &own, start + TTL).is_none(), "the stranger's try did not renew it");
        let gone = table.insert(stolen, &Client::Principal(other.clone()), start + TTL).unwrap();
        assert_eq!(
            (gone.expired.len(), &gone.expired[0].principal),
            (1, &own),
            "an id is free when its session has expired"
        );
        assert!(table.load("a", &other, start + TTL).is_some());
    }

    #[test]
    fn of_two_who_replace_a_record_the_second_gets_that_of_the_first() {
        let mut fixture = Fixture::new(8, 1 << 20);
        fixture.insert("a", 1, 0);
        let current = SessionRecord::new("a", Principal::unauthenticated());
        let next = |id: &str| SessionRecord { backend_id: Some(id.into()), ..current.clone() };
        let mut replace = |id| fixture.table.replace(&current, next(id), fixture.start).unwrap().backend_id.clone();
        assert_eq!([replace("first"), replace("second")], [Some("first".into()), Some("first".into())]);
        assert!(fixture.table.replace(&current, next("late"), fixture.start + TTL).is_none(), "it has expired");
    }

    #[test]
    fn a_record_can_change_its_size() {
        let mut fixture = Fixture::new(8, 1 << 20);
        fixture.insert("a", 1, 0);
        let mut record = SessionRecord::new("a", Principal::unauthenticated());
        record.backend_id = Some("longer".into());
        let weight = record.weight();
        let current = SessionRecord::new("a", Principal::unauthenticated());
        fixture.table.replace(&current, record, fixture.start).unwrap();
        assert_eq!(fixture.table.bytes, weight);
        fixture.table.remove_owned("a", &Principal::unauthenticated());
        assert_eq!(fixture.table.bytes, 0);
        assert!(fixture.table.clients.is_empty() && fixture.table.heaviest.is_empty());
    }
}
