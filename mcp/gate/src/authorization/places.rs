//! The places for questions that are open at a policy decision point.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mcp_store::{Bound, Client};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The questions at once in all, and for each client: one that asks many must leave some to the others.
const LIMIT: usize = 256;
const LIMIT_OF_CLIENT: usize = 16;

/// The places, in which the questions of a client wait for each other before those of others have to wait for them.
pub(super) struct Places {
    all: Arc<Semaphore>,
    clients: Mutex<HashMap<Client, Weak<Semaphore>>>,
}

/// A place that is taken; dropping it gives it back.
pub(super) struct Place {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(LIMIT)), clients: Mutex::default() }
    }

    pub(super) fn bound(&self) -> Bound {
        let used = LIMIT - self.all.available_permits();
        Bound { name: "policy_questions", used, limit: LIMIT }
    }

    /// Waits for a place. The semaphores are never closed, so that there is one at last.
    pub(super) async fn take(&self, client: &Client) -> Option<Place> {
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
        let own = Arc::new(Semaphore::new(LIMIT_OF_CLIENT));
        clients.insert(client.clone(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use futures::future::poll_immediate;

    use super::*;

    #[tokio::test]
    async fn a_client_waits_for_its_own_questions_and_not_for_those_of_another() {
        let places = Places::new();
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
