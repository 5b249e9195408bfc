//! Places for work that callers wait for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Bound, Client};

/// Places for what goes on at once, such as calls of somebody else's server. The work of a client waits for its own before others have to wait
/// for it.
pub struct Places {
    name: &'static str,
    limit: usize,
    limit_of_client: usize,
    all: Arc<Semaphore>,
    clients: Mutex<HashMap<Client, Weak<Semaphore>>>,
}

/// A place that is taken; dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Places {
    /// `limit` places in all and `limit_of_client` for each client, which metrics call by `name`.
    pub fn new(name: &'static str, limit: usize, limit_of_client: usize) -> Self {
        Self { name, limit, limit_of_client, all: Arc::new(Semaphore::new(limit)), clients: Mutex::default() }
    }

    /// The places that are taken.
    pub fn bound(&self) -> Bound {
        Bound { name: self.name, used: self.limit - self.all.available_permits(), limit: self.limit }
    }

    /// Waits for a place. The semaphores are never closed, so that there is one at last.
    pub async fn take(&self, client: &Client) -> Option<Place> {
        let own = self.of(client).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Place { _all: all, _own: own })
    }

    fn of(&self, client: &Client) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = clients.get(client).and_then(Weak::upgrade) {
            return own;
        }
        // Looking at every client is dear, so it waits until there are twice as many.
        if clients.len().is_power_of_two() {
            clients.retain(|_, own| own.strong_count() > 0);
        }
        let own = Arc::new(Semaphore::new(self.limit_of_client));
        clients.insert(client.clone(), Arc::downgrade(&own));
        own
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("bound", &self.bound()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::poll_immediate;

    use super::*;

    const LIMIT_OF_CLIENT: usize = 16;

    #[tokio::test]
    async fn a_client_waits_for_its_own_work_and_not_for_that_of_another() {
        let places = Places::new("work", 256, LIMIT_OF_CLIENT);
        let [one, two] = [1, 2].map(|host| Client::Network([192, 0, 2, host].into()));
        let mut held = Vec::new();
        for _ in 0..LIMIT_OF_CLIENT {
            held.extend(poll_immediate(places.take(&one)).await.flatten());
        }
        assert_eq!((held.len(), places.bound().used), (LIMIT_OF_CLIENT, LIMIT_OF_CLIENT));
        let mut next = Box::pin(places.take(&one));
        assert!(poll_immediate(&mut next).await.is_none(), "it waits");
        assert!(poll_immediate(places.take(&two)).await.flatten().is_some());
        held.pop();
        assert!(poll_immediate(&mut next).await.flatten().is_some());
        for host in 0..200 {
            drop(poll_immediate(places.take(&Client::Network([192, 0, 3, host].into()))).await);
        }
        assert!(places.clients.lock().unwrap().len() < 20, "nothing is kept of clients that are gone");
    }
}
