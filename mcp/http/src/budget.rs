//! How many bytes of request bodies are held at once, and whose upload ends when that is too many.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A bound on the bytes of request bodies that are held at once. Clones share it.
///
/// Bytes count as they arrive, so a slow upload counts for what it sent. One client holds at most half of the bound. Where the
/// bound is reached, the longest upload of the client that holds most ends; a body that has arrived is never taken back.
/// The first bytes of each body may be free, so that short requests pass while long ones hold everything.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    total: usize,
    /// Bytes of each body that do not count.
    free: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    next: u64,
    clients: HashMap<Client, Held>,
}

/// What one client holds.
#[derive(Default)]
struct Held {
    bytes: usize,
    entries: HashMap<u64, Entry>,
}

/// The network that bytes are counted for.
type Client = IpAddr;

struct Entry {
    bytes: usize,
    /// Wakes the reader when the upload is to end; `None` once the body has arrived.
    uploading: Option<Arc<Notify>>,
}

/// What one request holds of a [`Budget`]; dropping it gives the bytes back.
pub struct Share {
    budget: Budget,
    client: Client,
    id: u64,
    ended: Arc<Notify>,
    /// Bytes to come that do not count.
    free: usize,
}

/// There is no room for more of the body: answer 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for more of a request body")]
pub struct NoRoom;

impl Budget {
    /// A bound of `total` bytes.
    pub fn new(total: usize) -> Self {
        Self::with_free(total, 0)
    }

    /// A bound of `total` bytes, in which the first `free` bytes of each body do not count.
    pub fn with_free(total: usize, free: usize) -> Self {
        Self(Arc::new(Inner { total, free, state: Mutex::default() }))
    }

    /// An empty share for a request that counts for the network `client`: of IPv6, the /64 of which one host has all addresses.
    pub fn share(&self, client: IpAddr) -> Share {
        let ended = Arc::new(Notify::new());
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        let entry = Entry { bytes: 0, uploading: Some(Arc::clone(&ended)) };
        state.clients.entry(client).or_default().entries.insert(id, entry);
        drop(state);
        Share { budget: self.clone(), client, id, ended, free: self.0.free }
    }

    /// The bytes that are held.
    pub fn used(&self) -> usize {
        self.state().used
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn held(&self, client: Client) -> usize {
        self.clients.get(&client).map_or(0, |held| held.bytes)
    }

    /// Counts `bytes` more; false where the share is gone or no machine has so many.
    fn add(&mut self, (client, id): (Client, u64), bytes: usize) -> bool {
        let Some(used) = self.used.checked_add(bytes) else { return false };
        let Some(held) = self.clients.get_mut(&client) else { return false };
        let Some(entry) = held.entries.get_mut(&id) else { return false };
        entry.bytes += bytes;
        held.bytes += bytes;
        self.used = used;
        true
    }

    fn remove(&mut self, (client, id): (Client, u64)) -> Option<Entry> {
        let held = self.clients.get_mut(&client)?;
        let entry = held.entries.remove(&id)?;
        held.bytes -= entry.bytes;
        if held.entries.is_empty() {
            self.clients.remove(&client);
        }
        self.used -= entry.bytes;
        Some(entry)
    }

    /// The longest upload of `client`; without one, of the client that holds most of all that upload.
    fn longest(&self, client: Option<Client>) -> Option<(Client, u64)> {
        let clients = self.clients.iter().filter(|(key, _)| client.is_none_or(|client| **key == client));
        let uploads = clients.filter_map(|(key, held)| {
            let uploads = held.entries.iter().filter(|(_, entry)| entry.uploading.is_some() && entry.bytes > 0);
            let (id, entry) = uploads.max_by_key(|(id, entry)| (entry.bytes, **id))?;
            Some(((held.bytes, entry.bytes), (*key, *id)))
        });
        uploads.max_by_key(|(rank, _)| *rank).map(|(_, upload)| upload)
    }
}

// === impl Share ===

impl Share {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// There is no room for them, and of all uploads this one is to end.
    pub fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let free = self.free.min(bytes);
        self.free -= free;
        let bytes = bytes - free;
        if bytes == 0 {
            return Ok(());
        }
        let (total, me) = (self.budget.0.total, (self.client, self.id));
        let mut state = self.budget.state();
        if !state.add(me, bytes) {
            state.remove(me);
            return Err(NoRoom);
        }
        loop {
            let crowded = state.held(self.client) > total / 2;
            if !crowded && state.used <= total {
                return Ok(());
            }
            let upload = state.longest(crowded.then_some(self.client)).unwrap_or(me);
            let ended = state.remove(upload).and_then(|entry| entry.uploading);
            if upload == me {
                return Err(NoRoom);
            }
            if let Some(ended) = ended {
                ended.notify_one();
            }
        }
    }

    /// Returns when the upload is to end because another request needs the room. Its bytes are given back already.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }

    /// The body has arrived: it is not taken back any more.
    ///
    /// # Errors
    /// It has been taken back just before.
    pub fn arrived(&self) -> Result<(), NoRoom> {
        let mut state = self.budget.state();
        let held = state.clients.get_mut(&self.client).ok_or(NoRoom)?;
        held.entries.get_mut(&self.id).ok_or(NoRoom)?.uploading = None;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.state().remove((self.client, self.id));
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("total", &self.0.total).field("used", &self.used()).finish()
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("client", &self.client).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const C: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));

    fn upload(budget: &Budget, client: IpAddr, bytes: usize) -> Share {
        let mut share = budget.share(client);
        share.grow(bytes).unwrap();
        share
    }

    fn is_ended(share: &Share) -> bool {
        share.ended().now_or_never().is_some()
    }

    #[test]
    fn long_bodies_that_a_slow_server_keeps_do_not_stop_short_ones() {
        let budget = Budget::with_free(100, 8);
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
        let budget = Budget::new(100);
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
        let budget = Budget::new(100);
        let (long, short) = (upload(&budget, A, 30), upload(&budget, A, 20));
        let mut next = budget.share(A);
        assert_eq!(next.grow(1), Ok(()));
        assert!(is_ended(&long) && !is_ended(&short));
        assert_eq!(budget.used(), 21);
        // What alone is more than half ends by itself.
        assert_eq!(budget.share(B).grow(51), Err(NoRoom));
        assert_eq!(next.grow(30), Err(NoRoom));
        assert_eq!(budget.used(), 20);
    }

    #[test]
    fn over_the_bound_the_client_that_holds_most_loses_an_upload_and_not_the_one_that_asks() {
        let budget = Budget::new(100);
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
        let budget = Budget::new(100);
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

    #[test]
    fn a_bound_or_a_body_of_any_size_does_not_panic() {
        let budget = Budget::new(usize::MAX);
        let mut share = budget.share(A);
        share.grow(usize::MAX / 2).unwrap();
        assert_eq!(share.grow(usize::MAX), Err(NoRoom));
        assert_eq!(budget.used(), 0);
    }
}
