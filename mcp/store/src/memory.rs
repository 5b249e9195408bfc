//! The store of a single proxy.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::table::{Limits, Table};
use crate::{Client, Principal, Reply, SessionRecord, SessionStore};

/// Sessions in the memory of this process. Every operation is logarithmic in their number and never waits for another one's IO.
#[derive(Debug)]
pub struct MemorySessions(Mutex<Table>);

impl MemorySessions {
    /// An empty store.
    pub fn new(limits: Limits) -> Self {
        Self(Mutex::new(Table::new(limits)))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for MemorySessions {
    fn insert<'a>(&'a self, record: SessionRecord, client: &'a Client) -> Reply<'a, Option<Vec<Arc<SessionRecord>>>> {
        let inserted = self.table().insert(record, client, Instant::now());
        Box::pin(ready(Ok(inserted)))
    }

    fn load<'a>(&'a self, id: &'a str, principal: &'a Principal) -> Reply<'a, Option<Arc<SessionRecord>>> {
        let found = self.table().load(id, principal, Instant::now());
        Box::pin(ready(Ok(found)))
    }

    fn replace(&self, record: SessionRecord) -> Reply<'_, ()> {
        self.table().replace(record);
        Box::pin(ready(Ok(())))
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
