//! The budget for bodies that are held at once, and the eviction of bodies beyond it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use mcp_store::{Bound, Client};
use tokio::sync::Notify;

/// A bound on the bytes of bodies that are held at once. Clones share it.
///
/// Bytes count as they arrive, so a slow body counts for what came of it. Where a client would hold more than it may,
/// its own longest body gives way; where all hold too much, the longest body of the client that holds most. A body that
/// has [arrived](Share::arrived) never gives way. The first bytes of each body may be free, so that short bodies pass
/// while long ones hold everything.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

/// The figures of a [`Budget`], in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The bytes of all bodies.
    pub total: usize,
    /// The bytes of one client's bodies.
    pub client: usize,
    /// The bytes of each body that do not count.
    pub free: usize,
}

struct Inner {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    next: u64,
    clients: HashMap<Client, Held>,
}

/// The bodies of one client.
#[derive(Default)]
struct Held {
    bytes: usize,
    entries: HashMap<u64, Entry>,
}

struct Entry {
    bytes: usize,
    /// Whether the body may be taken back.
    gives_way: bool,
    /// Wakes its reader then.
    ended: Arc<Notify>,
    /// The value that the body's owner has stored here.
    kept: Kept,
}

/// The share of one body of a [`Budget`]; dropping it gives the bytes back.
pub struct Share {
    budget: Budget,
    client: Client,
    /// The bytes of the body, with those that do not count.
    bytes: usize,
    /// Its entry in the budget, once some of it counts. The budget no longer has it when the body was taken back.
    entry: Option<(u64, Arc<Notify>)>,
    /// The stored value while nothing of it counts.
    kept: Kept,
}

/// Bytes that a [`Share`] keeps for its owner.
#[derive(Debug, Default)]
pub struct Kept {
    /// Bytes that may be sent.
    pub ready: Bytes,
    /// Bytes that have to wait for more.
    pub unfinished: BytesMut,
}

/// There is no room for the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for more of a body")]
pub struct NoRoom;

impl Budget {
    /// A budget within these bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Inner { bounds, state: Mutex::default() }))
    }

    /// An empty share for a body that counts for `client`.
    pub fn share(&self, client: Client) -> Share {
        Share { budget: self.clone(), client, bytes: 0, entry: None, kept: Kept::default() }
    }

    /// The bytes that count.
    pub fn used(&self) -> usize {
        self.state().used
    }

    /// The budget as metrics call it by `name`.
    pub fn bound(&self, name: &'static str) -> Bound {
        Bound { name, used: self.used(), limit: self.0.bounds.total }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// The memory that they take, in bytes.
    pub fn size(&self) -> usize {
        self.ready.len() + self.unfinished.capacity()
    }
}

impl State {
    fn held(&self, client: &Client) -> usize {
        self.clients.get(client).map_or(0, |held| held.bytes)
    }

    fn enter(&mut self, client: &Client) -> (u64, Arc<Notify>) {
        self.next += 1;
        let ended = Arc::new(Notify::new());
        let entry = Entry { bytes: 0, gives_way: true, ended: Arc::clone(&ended), kept: Kept::default() };
        self.clients.entry(client.clone()).or_default().entries.insert(self.next, entry);
        (self.next, ended)
    }

    fn entry(&mut self, (client, id): (&Client, u64)) -> Option<&mut Entry> {
        self.clients.get_mut(client)?.entries.get_mut(&id)
    }

    /// Makes `bytes` of it count; false where the body was taken back or no machine has so many.
    fn set(&mut self, (client, id): (&Client, u64), bytes: usize) -> bool {
        let Some(held) = self.clients.get_mut(client) else { return false };
        let Some(entry) = held.entries.get_mut(&id) else { return false };
        let Some(used) = (self.used - entry.bytes).checked_add(bytes) else { return false };
        held.bytes = held.bytes - entry.bytes + bytes;
        entry.bytes = bytes;
        self.used = used;
        true
    }

    fn remove(&mut self, (client, id): (&Client, u64)) -> Option<Entry> {
        let held = self.clients.get_mut(client)?;
        let entry = held.entries.remove(&id)?;
        held.bytes -= entry.bytes;
        if held.entries.is_empty() {
            self.clients.remove(client);
        }
        self.used -= entry.bytes;
        Some(entry)
    }

    /// The longest body of `client` that may be taken back; without one, of the client that holds most of all that have
    /// any.
    fn longest(&self, client: Option<&Client>) -> Option<(Client, u64)> {
        let clients = self.clients.iter().filter(|(key, _)| client.is_none_or(|client| *key == client));
        let bodies = clients.filter_map(|(key, held)| {
            let bodies = held.entries.iter().filter(|(_, entry)| entry.gives_way && entry.bytes > 0);
            let (id, entry) = bodies.max_by_key(|(id, entry)| (entry.bytes, **id))?;
            // Among equals, one that waits for its client.
            Some(((held.bytes, entry.bytes, entry.kept.size() > 0), (key, *id)))
        });
        bodies.max_by_key(|(rank, _)| *rank).map(|(_, (client, id))| (client.clone(), id))
    }

    /// Takes bodies back until `me` is within the bounds; fails where `me` is one of them.
    fn make_room(&mut self, me: (&Client, u64), bounds: Bounds, gone: &mut Vec<Entry>) -> Result<(), NoRoom> {
        loop {
            let crowded = self.held(me.0) > bounds.client;
            if !crowded && self.used <= bounds.total {
                return Ok(());
            }
            let (client, id) = self.longest(crowded.then_some(me.0)).unwrap_or_else(|| (me.0.clone(), me.1));
            gone.extend(self.remove((&client, id)));
            if id == me.1 {
                return Err(NoRoom);
            }
        }
    }
}

// === impl Share ===

impl Share {
    /// An empty share for another body of the same client.
    #[must_use]
    pub fn another(&self) -> Self {
        self.budget.share(self.client.clone())
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.resize(self.bytes.saturating_add(bytes))
    }

    /// Takes so many bytes in place of what it had.
    ///
    /// # Errors
    /// There is no room for them and of all bodies this one is to give way, or it had to before. It holds nothing then.
    pub fn resize(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let bounds = self.budget.0.bounds;
        let (before, after) = (self.bytes.saturating_sub(bounds.free), bytes.saturating_sub(bounds.free));
        self.bytes = bytes;
        if before == after {
            return Ok(());
        }
        let mut gone = Vec::new();
        let mut state = self.budget.state();
        let me = (&self.client, self.entry.get_or_insert_with(|| state.enter(&self.client)).0);
        let result = if after == 0 {
            gone.extend(state.remove(me));
            self.entry = None;
            Ok(())
        } else if state.set(me, after) {
            if after > before { state.make_room(me, bounds, &mut gone) } else { Ok(()) }
        } else {
            gone.extend(state.remove(me));
            Err(NoRoom)
        };
        drop(state);
        for entry in gone {
            entry.ended.notify_one();
            if entry.kept.size() > 0 {
                tracing::warn!(
                    bytes = entry.bytes,
                    "dropped a body that waits for its client: another body needs the room"
                );
            }
        }
        result
    }

    /// Gives everything back, and begins anew.
    pub fn clear(&mut self) {
        if let Some((id, _)) = self.entry.take() {
            let gone = self.budget.state().remove((&self.client, id));
            drop(gone);
        }
        (self.bytes, self.kept) = (0, Kept::default());
    }

    /// Returns when the body is to give way to another. Its bytes are given back already.
    pub async fn ended(&self) {
        match &self.entry {
            Some((_, ended)) => ended.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The body has arrived: it does not give way any more.
    ///
    /// # Errors
    /// It had to just before.
    pub fn arrived(&self) -> Result<(), NoRoom> {
        let Some((id, _)) = self.entry else { return Ok(()) };
        self.budget.state().entry((&self.client, id)).ok_or(NoRoom)?.gives_way = false;
        Ok(())
    }

    /// Leaves the body here until it is [taken](Self::take). It gives way to others from now on: its memory is free at
    /// once then, whatever its owner waits for.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn put(&mut self, kept: Kept) -> Result<(), NoRoom> {
        self.resize(kept.size())?;
        let Some((id, _)) = self.entry else {
            self.kept = kept;
            return Ok(());
        };
        let mut state = self.budget.state();
        let entry = state.entry((&self.client, id)).ok_or(NoRoom)?;
        (entry.kept, entry.gives_way) = (kept, true);
        Ok(())
    }

    /// Takes out what was put here. It still counts.
    ///
    /// # Errors
    /// It had to give way.
    pub fn take(&mut self) -> Result<Kept, NoRoom> {
        let Some((id, _)) = self.entry else { return Ok(std::mem::take(&mut self.kept)) };
        let mut state = self.budget.state();
        state.entry((&self.client, id)).map(|entry| std::mem::take(&mut entry.kept)).ok_or(NoRoom)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("bounds", &self.0.bounds).field("used", &self.used()).finish()
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("client", &self.client).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use futures::FutureExt;

    use super::*;

    const A: Client = client(1);
    const B: Client = client(2);
    const C: Client = client(3);

    const fn client(host: u8) -> Client {
        Client::Network(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)))
    }

    /// One client may hold half of it.
    fn half(total: usize) -> Bounds {
        Bounds { total, client: total / 2, free: 0 }
    }

    fn upload(budget: &Budget, client: Client, bytes: usize) -> Share {
        let mut share = budget.share(client);
        share.grow(bytes).unwrap();
        share
    }

    fn is_ended(share: &Share) -> bool {
        share.ended().now_or_never().is_some()
    }

    #[test]
    fn long_bodies_that_a_slow_server_keeps_do_not_stop_short_ones() {
        let budget = Budget::new(Bounds { free: 8, ..half(100) });
        let kept: Vec<_> = [A, A, B, B].into_iter().map(|client| upload(&budget, client, 33)).collect();
        for share in &kept {
            share.arrived().unwrap();
        }
        let short = [A, B, C].map(|client| upload(&budget, client, 8));
        assert_eq!(budget.used(), 100);
        assert!(budget.share(A).grow(9).is_err());
        assert!(short.iter().all(|share| !is_ended(share)), "a short one has nothing to give back");
    }

    #[test]
    fn bytes_count_as_they_arrive_and_are_free_again_when_the_request_is_over() {
        let budget = Budget::new(half(100));
        let mut share = upload(&budget, A, 10);
        share.grow(5).unwrap();
        assert_eq!(budget.used(), 15);
        share.arrived().unwrap();
        assert_eq!(budget.used(), 15);
        drop(share);
        assert_eq!(budget.used(), 0);
        assert!(budget.state().clients.is_empty());
    }

    #[test]
    fn a_clients_own_longest_upload_ends_before_it_holds_more_than_half() {
        let budget = Budget::new(half(100));
        let (long, short) = (upload(&budget, A, 30), upload(&budget, A, 20));
        let mut next = budget.share(A);
        assert_eq!(next.grow(1), Ok(()));
        assert!(is_ended(&long) && !is_ended(&short));
        assert_eq!(budget.used(), 21);
        // A body that is more than half alone ends by itself.
        assert_eq!(budget.share(B).grow(51), Err(NoRoom));
        assert_eq!(next.grow(30), Err(NoRoom));
        assert_eq!(budget.used(), 20);
    }

    #[test]
    fn over_the_bound_the_client_that_holds_most_loses_an_upload_and_not_the_one_that_asks() {
        let budget = Budget::new(half(100));
        let most = upload(&budget, A, 50);
        let other = upload(&budget, B, 40);
        let mut asking = budget.share(C);
        asking.grow(20).unwrap();
        assert!(is_ended(&most) && !is_ended(&other));
        assert_eq!(budget.used(), 60);
        drop(most);
        assert_eq!(budget.used(), 60);
    }

    #[test]
    fn a_body_that_has_arrived_is_not_taken_back() {
        let budget = Budget::new(half(100));
        let arrived = upload(&budget, A, 50);
        arrived.arrived().unwrap();
        let small = upload(&budget, A, 0);
        let mut other = upload(&budget, B, 49);
        // The other one now holds most of those that still upload.
        assert_eq!(other.grow(2), Err(NoRoom));
        assert!(!is_ended(&arrived) && !is_ended(&small));
        assert_eq!(other.grow(1), Err(NoRoom));
        assert_eq!(other.arrived(), Err(NoRoom));
        assert_eq!(budget.used(), 50);
    }

    fn kept(bytes: usize) -> Kept {
        Kept { ready: vec![0; bytes].into(), unfinished: BytesMut::new() }
    }

    #[test]
    fn bytes_that_wait_for_their_client_are_free_at_once_when_another_needs_the_room() {
        let budget = Budget::new(Bounds { total: 100, client: 80, free: 0 });
        let (mut waiting, mut short) = (budget.share(A), budget.share(B));
        let long = kept(60);
        let watched = long.ready.clone();
        waiting.put(long).unwrap();
        short.put(kept(30)).unwrap();
        assert!(!watched.is_unique());
        let asking = upload(&budget, C, 20);
        assert!(watched.is_unique(), "nobody polls the one that waits");
        assert_eq!(waiting.take().unwrap_err(), NoRoom);
        assert_eq!(waiting.put(kept(1)), Err(NoRoom));
        assert_eq!(short.take().unwrap().ready.len(), 30);
        assert_eq!(budget.used(), 50);
        // One that gave way begins anew.
        waiting.clear();
        waiting.put(kept(40)).unwrap();
        assert_eq!(waiting.take().unwrap().ready.len(), 40);
        drop((waiting, short, asking));
        assert_eq!(budget.used(), 0);
        assert!(budget.state().clients.is_empty());
    }

    #[test]
    fn what_is_taken_out_still_counts_and_gives_way_when_it_comes_back() {
        let budget = Budget::new(Bounds { total: 100, client: 100, free: 10 });
        let mut share = budget.share(A);
        share.put(kept(90)).unwrap();
        let out = share.take().unwrap();
        assert_eq!(budget.used(), 80);
        let other = upload(&budget, B, 40);
        assert_eq!(budget.used(), 30, "it gave way");
        assert_eq!(share.put(out), Err(NoRoom));
        share.clear();
        // Free bytes stay with their owner, whichever client needs room.
        share.put(kept(10)).unwrap();
        let _most = upload(&budget, C, 80);
        assert_eq!(share.take().unwrap().ready.len(), 10);
        drop(other);
    }

    #[test]
    fn a_body_that_shrinks_gives_back_what_it_held() {
        let budget = Budget::new(half(100));
        let mut share = upload(&budget, A, 40);
        share.resize(10).unwrap();
        assert_eq!(budget.used(), 10);
        share.resize(0).unwrap();
        assert_eq!(budget.used(), 0);
        assert!(budget.state().clients.is_empty());
        share.grow(50).unwrap();
        assert_eq!(budget.used(), 50);
    }

    #[test]
    fn a_bound_or_a_body_of_any_size_does_not_panic() {
        let budget = Budget::new(half(usize::MAX));
        let mut share = budget.share(A);
        share.grow(usize::MAX / 2).unwrap();
        assert_eq!(share.grow(usize::MAX), Err(NoRoom));
        assert_eq!(budget.used(), 0);
    }
}
