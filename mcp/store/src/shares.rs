//! A bound on something that clients take and give back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Client;

/// A bound that clients share, and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The bound's name in metrics.
    pub name: &'static str,
    /// The part that is in use, in bytes or in pieces.
    pub used: usize,
    /// All that there is, in the same unit.
    pub limit: usize,
}

/// A bound on what all clients take of something, and on what each of them takes: one leaves some to the others.
#[derive(Debug)]
pub struct Shares {
    total: usize,
    client: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    clients: HashMap<Client, usize>,
}

/// A part that a client took; dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    client: Client,
    amount: usize,
}

impl Shares {
    /// All clients take at most `total`, each at most `client`.
    pub fn new(total: usize, client: usize) -> Arc<Self> {
        Arc::new(Self { total, client, taken: Mutex::default() })
    }

    /// Takes `amount` for `client`; `None` where that is more than is left to it.
    pub fn take(self: &Arc<Self>, client: &Client, amount: usize) -> Option<Share> {
        let mut taken = self.lock();
        let own = taken.clients.get(client).copied().unwrap_or(0);
        if taken.all + amount > self.total || own + amount > self.client {
            return None;
        }
        taken.all += amount;
        taken.clients.insert(client.clone(), own + amount);
        Some(Share { shares: Arc::clone(self), client: client.clone(), amount })
    }

    /// The part that is taken.
    pub fn taken(&self) -> usize {
        self.lock().all
    }

    /// The bound as metrics call it by `name`.
    pub fn bound(&self, name: &'static str) -> Bound {
        Bound { name, used: self.taken(), limit: self.total }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        taken.all -= self.amount;
        if let Some(own) = taken.clients.get_mut(&self.client) {
            *own -= self.amount;
            if *own == 0 {
                taken.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_its_share_and_leaves_the_others_theirs() {
        let (shares, [one, two, three]) =
            (Shares::new(5, 2), [1, 2, 3].map(|host| Client::Network([192, 0, 2, host].into())));
        let held = [shares.take(&one, 1).unwrap(), shares.take(&one, 1).unwrap()];
        assert!(shares.take(&one, 1).is_none());
        let other = shares.take(&two, 2).unwrap();
        assert!(shares.take(&three, 2).is_none(), "all is bounded too");
        assert_eq!(shares.taken(), 4);
        drop((held, other));
        assert!(shares.lock().clients.is_empty(), "nothing is kept of a client that holds nothing");
        assert!(shares.take(&one, 2).is_some());
    }
}
