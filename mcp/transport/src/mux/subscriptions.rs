//! Which session wants to hear of which resource. The server is asked once for each resource.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Subscriptions to more resources than this are refused.
const MAX_RESOURCES: usize = 10_000;
/// More of one session are refused.
const MAX_OF_SESSION: usize = 1_000;
/// Subscriptions to resources with a longer URI are refused.
const MAX_URI: usize = 8 << 10;

#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    by_uri: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    by_session: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `session` may subscribe to `uri` as well.
    pub(crate) fn has_room(&self, uri: &str, session: &str) -> bool {
        let tables = self.lock();
        let of_session = tables.by_session.get(session).map_or(0, BTreeSet::len);
        uri.len() <= MAX_URI && of_session < MAX_OF_SESSION && tables.by_uri.len() < MAX_RESOURCES
    }

    /// Adds a subscriber when the server watches the resource already.
    pub(crate) fn join(&self, uri: &str, session: &str) -> bool {
        let mut tables = self.lock();
        let watched = tables.by_uri.contains_key(uri);
        if watched {
            tables.add(uri, session);
        }
        watched
    }

    pub(crate) fn add(&self, uri: &str, session: &str) {
        self.lock().add(uri, session);
    }

    /// Removes a subscriber; whether it was the last.
    pub(crate) fn part(&self, uri: &str, session: &str) -> bool {
        self.lock().part(uri, session)
    }

    /// Removes a session everywhere and returns the resources that nobody wants to hear of any more.
    pub(super) fn leave(&self, session: &str) -> Vec<Arc<str>> {
        let mut tables = self.lock();
        let uris = tables.by_session.get(session).cloned().unwrap_or_default();
        uris.into_iter().filter(|uri| tables.part(uri, session)).collect()
    }

    pub(super) fn subscribers(&self, uri: &str) -> Vec<Arc<str>> {
        self.lock().by_uri.get(uri).map(|sessions| sessions.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn uris(&self) -> Vec<Arc<str>> {
        self.lock().by_uri.keys().cloned().collect()
    }
}

impl Tables {
    fn add(&mut self, uri: &str, session: &str) {
        let (uri, session): (Arc<str>, Arc<str>) = (uri.into(), session.into());
        self.by_uri.entry(Arc::clone(&uri)).or_default().insert(Arc::clone(&session));
        self.by_session.entry(session).or_default().insert(uri);
    }

    fn part(&mut self, uri: &str, session: &str) -> bool {
        remove(&mut self.by_session, session, uri);
        remove(&mut self.by_uri, uri, session)
    }
}

/// Removes `value` from the set of `key`; whether nothing is left of the set.
fn remove(table: &mut BTreeMap<Arc<str>, BTreeSet<Arc<str>>>, key: &str, value: &str) -> bool {
    let Some(values) = table.get_mut(key) else { return true };
    values.remove(value);
    let empty = values.is_empty();
    if empty {
        table.remove(key);
    }
    empty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_over_leaves_what_nobody_else_wants_and_nothing_is_kept_of_it() {
        let subscriptions = Subscriptions::default();
        assert!(!subscriptions.join("a", "one"));
        subscriptions.add("a", "one");
        subscriptions.add("b", "one");
        assert!(subscriptions.join("a", "two"));
        assert_eq!(subscriptions.leave("one"), ["b".into()]);
        assert_eq!(subscriptions.subscribers("a"), ["two".into()]);
        assert!(subscriptions.part("a", "two"));
        let tables = subscriptions.lock();
        assert!(tables.by_uri.is_empty() && tables.by_session.is_empty());
    }

    #[test]
    fn one_session_does_not_take_all_subscriptions() {
        let subscriptions = Subscriptions::default();
        for n in 0.. {
            let uri = format!("u{n}");
            if !subscriptions.has_room(&uri, "one") {
                assert_eq!(n, MAX_OF_SESSION);
                break;
            }
            subscriptions.add(&uri, "one");
        }
        assert!(subscriptions.has_room("mine", "two"));
        assert!(!subscriptions.has_room(&"u".repeat(MAX_URI + 1), "two"));
    }
}
