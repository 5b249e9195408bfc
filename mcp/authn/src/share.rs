//! How much of something each client may take at once, so that one leaves some to the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What each client network has taken.
#[derive(Debug)]
pub(crate) struct Shares {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    limit: usize,
}

/// One of what a client took; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    client: IpAddr,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Shares {
    /// At most `limit` for each client, which is one at least.
    pub(crate) fn new(limit: usize) -> Self {
        Self { taken: Arc::default(), limit }
    }

    /// One for `client`, where it does not have its share already.
    pub(crate) fn take(&self, client: IpAddr) -> Option<Share> {
        let mut taken = lock(&self.taken);
        let own = taken.entry(client).or_default();
        if *own >= self.limit {
            return None;
        }
        *own += 1;
        Some(Share { client, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(own) = taken.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

fn lock(taken: &Mutex<HashMap<IpAddr, usize>>) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_its_share_and_leaves_the_others_theirs() {
        let (shares, one, other) = (Shares::new(2), IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let held = [shares.take(one).unwrap(), shares.take(one).unwrap()];
        assert!(shares.take(one).is_none());
        assert!(shares.take(other).is_some());
        drop(held);
        assert!(lock(&shares.taken).is_empty(), "nothing is kept of a client that holds nothing");
        assert!(shares.take(one).is_some());
    }
}
