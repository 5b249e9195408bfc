//! The store of a single proxy.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::table::{Limits, Removed, Table};
use crate::{Client, Principal, Reply, SessionRecord, SessionStore};

/// Sessions in the memory of this process. Every operation is logarithmic in their number and never waits for another one's IO.
#[derive(Debug)]
pub struct MemorySessions(Mutex<Table>);

impl MemorySessions {
    /// An empty store.
    pub fn new(limits: Limits) -> Self {
        Self(Mutex::new(Table::new(limits)))
    }

    /// Adds a session as [`insert`](SessionStore::insert) does, and tells those that expired from those that made room: for a store that keeps an
    /// account of its sessions here, and the sessions elsewhere.
    pub fn admit(&self, record: SessionRecord, client: &Client) -> Option<Removed> {
        self.table().insert(record, client, Instant::now())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for MemorySessions {
    fn insert<'a>(&'a self, record: SessionRecord, client: &'a Client) -> Reply<'a, Option<Vec<Arc<SessionRecord>>>> {
        let gone = self.admit(record, client).map(|Removed { expired, evicted }| [expired, evicted].concat());
        Box::pin(ready(Ok(gone)))
    }

    fn load<'a>(&'a self, id: &'a str, principal: &'a Principal) -> Reply<'a, Option<Arc<SessionRecord>>> {
        let found = self.table().load(id, principal, Instant::now());
        Box::pin(ready(Ok(found)))
    }

    fn replace<'a>(&'a self, current: &'a SessionRecord, next: SessionRecord) -> Reply<'a, Option<Arc<SessionRecord>>> {
        let replaced = self.table().replace(current, next, Instant::now());
        Box::pin(ready(Ok(replaced)))
    }

    fn remove<'a>(&'a self, id: &'a str, principal: &'a Principal) -> Reply<'a, bool> {
        let removed = self.table().remove_owned(id, principal);
        Box::pin(ready(Ok(removed)))
    }

    fn ttl(&self) -> Duration {
        self.table().ttl()
    }

    fn len(&self) -> usize {
        self.table().len()
    }
}
