//! Which session wants to hear of which resource. The server is asked once for each resource.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcp_store::{Bound, Client};

/// Room of all subscriptions, in bytes: some 10,000 of them, with URIs of the usual length.
const MAX_BYTES: usize = 4 << 20;
/// Room of a subscription beside its URI, in bytes.
const OVERHEAD: usize = 400;
/// Subscriptions to resources with a longer URI are refused.
const MAX_URI: usize = 8 << 10;

/// The subscriptions. When there is no room, the client that has most of them loses its oldest ones to one that has fewer.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    by_uri: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Entry>>,
    by_session: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    clients: HashMap<Client, Holding>,
    bytes: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    client: Client,
    position: u64,
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
struct Holding {
    bytes: usize,
    /// URI and session, the oldest first.
    order: BTreeMap<u64, (Arc<str>, Arc<str>)>,
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bound(&self) -> Bound {
        Bound { name: "subscriptions", used: self.lock().bytes, limit: MAX_BYTES }
    }

    /// Whether `client` may subscribe to `uri` as well.
    pub(crate) fn has_room(&self, uri: &str, client: &Client) -> bool {
        let tables = self.lock();
        let own = tables.clients.get(client).map_or(0, |holding| holding.bytes);
        // Another one that has more, also when this one has its new one, makes room.
        let gives_way = || tables.heaviest().is_some_and(|most| most.bytes > own + weight(uri));
        uri.len() <= MAX_URI && (tables.bytes + weight(uri) <= MAX_BYTES || gives_way())
    }

    /// [Adds](Self::add) a subscriber when the server watches the resource already; `None` when it does not.
    pub(crate) fn join(&self, uri: &str, session: &str, client: &Client) -> Option<Vec<Arc<str>>> {
        let mut tables = self.lock();
        tables.by_uri.contains_key(uri).then(|| tables.add(uri, session, client))
    }

    /// Adds a subscriber, and returns the resources that nobody wants to hear of any more, as others had to go for it.
    pub(crate) fn add(&self, uri: &str, session: &str, client: &Client) -> Vec<Arc<str>> {
        self.lock().add(uri, session, client)
    }

    /// Removes a subscriber; whether it was the last.
    pub(crate) fn part(&self, uri: &str, session: &str) -> bool {
        self.lock().part(uri, session)
    }

    /// Removes a session everywhere and returns the resources that nobody wants to hear of any more.
    pub(super) fn leave(&self, session: &str) -> Vec<Arc<str>> {
        let mut tables = self.lock();
        let uris: Vec<_> = tables.by_session.get(session).into_iter().flatten().cloned().collect();
        uris.into_iter().filter(|uri| tables.part(uri, session)).collect()
    }

    pub(super) fn subscribers(&self, uri: &str) -> Vec<Arc<str>> {
        self.lock().by_uri.get(uri).map(|sessions| sessions.keys().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn uris(&self) -> Vec<Arc<str>> {
        self.lock().by_uri.keys().cloned().collect()
    }
}

impl Tables {
    fn add(&mut self, uri: &str, session: &str, client: &Client) -> Vec<Arc<str>> {
        if self.by_session.get(session).is_some_and(|uris| uris.contains(uri)) {
            return Vec::new();
        }
        let (uri, session): (Arc<str>, Arc<str>) = (uri.into(), session.into());
        self.next += 1;
        let position = self.next;
        self.bytes += weight(&uri);
        let holding = self.clients.entry(client.clone()).or_default();
        holding.bytes += weight(&uri);
        holding.order.insert(position, (Arc::clone(&uri), Arc::clone(&session)));
        self.by_session.entry(Arc::clone(&session)).or_default().insert(Arc::clone(&uri));
        self.by_uri.entry(uri).or_default().insert(session, Entry { client: client.clone(), position });
        let mut gone = Vec::new();
        while self.bytes > MAX_BYTES
            && let Some((uri, session)) = self.heaviest().and_then(|most| most.order.values().next().cloned())
        {
            tracing::warn!("dropped the oldest subscription of the client that has most of them: there is no room");
            if self.part(&uri, &session) {
                gone.push(uri);
            }
        }
        gone
    }

    fn heaviest(&self) -> Option<&Holding> {
        self.clients.values().max_by_key(|holding| holding.bytes)
    }

    fn part(&mut self, uri: &str, session: &str) -> bool {
        if let Some(uris) = self.by_session.get_mut(session) {
            uris.remove(uri);
            if uris.is_empty() {
                self.by_session.remove(session);
            }
        }
        let Some(sessions) = self.by_uri.get_mut(uri) else { return true };
        let entry = sessions.remove(session);
        let last = sessions.is_empty();
        if last {
            self.by_uri.remove(uri);
        }
        if let Some(Entry { client, position }) = entry {
            self.bytes -= weight(uri);
            if let Some(holding) = self.clients.get_mut(&client) {
                holding.bytes -= weight(uri);
                holding.order.remove(&position);
                if holding.order.is_empty() {
                    self.clients.remove(&client);
                }
            }
        }
        last
    }
}

fn weight(uri: &str) -> usize {
    OVERHEAD + uri.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(host: u8) -> Client {
        Client::Network([192, 0, 2, host].into())
    }

    #[test]
    fn a_session_that_is_over_leaves_what_nobody_else_wants_and_nothing_is_kept_of_it() {
        let subscriptions = Subscriptions::default();
        assert_eq!(subscriptions.join("a", "one", &client(1)), None);
        subscriptions.add("a", "one", &client(1));
        subscriptions.add("b", "one", &client(1));
        assert_eq!(subscriptions.join("a", "two", &client(2)), Some(vec![]));
        assert_eq!(subscriptions.leave("one"), ["b".into()]);
        assert_eq!(subscriptions.subscribers("a"), ["two".into()]);
        assert!(subscriptions.part("a", "two"));
        let tables = subscriptions.lock();
        assert!(tables.by_uri.is_empty() && tables.by_session.is_empty() && tables.clients.is_empty());
        assert_eq!(tables.bytes, 0);
    }

    /// Subscribes sessions of one client until there is no room; the number of subscriptions.
    fn fill(subscriptions: &Subscriptions, client: &Client) -> usize {
        let fresh = |n: usize| (format!("{client:?}{n}"), format!("{client:?}{}", n / 1_000));
        let admitted = (0..).map(fresh).take_while(|(uri, _)| subscriptions.has_room(uri, client));
        admitted.inspect(|(uri, session)| drop(subscriptions.add(uri, session, client))).count()
    }

    #[test]
    fn a_client_with_all_subscriptions_gives_its_oldest_to_others() {
        let subscriptions = Subscriptions::default();
        let [mallory, alice] = [client(1), client(2)];
        let all = fill(&subscriptions, &mallory);
        assert!(all > 9_000, "{all}: it may have all that nobody else wants");
        assert!(!subscriptions.has_room(&"u".repeat(MAX_URI + 1), &alice));
        assert!(subscriptions.has_room("mine", &alice));
        let gone = subscriptions.add("mine", "alice", &alice);
        assert_eq!(gone, [format!("{mallory:?}0").into()]);
        assert_eq!(subscriptions.subscribers("mine"), ["alice".into()]);
        // They end with a half each, and then neither takes from the other.
        let others = fill(&subscriptions, &alice);
        assert!((all / 2 - 2..=all / 2 + 2).contains(&others), "{others} of {all}");
        assert!(!subscriptions.has_room("more", &mallory) && subscriptions.lock().bytes <= MAX_BYTES);
        assert!(subscriptions.has_room("third", &client(3)));
    }

    #[test]
    fn sessions_that_share_a_resource_count_each() {
        let subscriptions = Subscriptions::default();
        let mallory = client(1);
        for session in 0..20_000 {
            subscriptions.add("same", &session.to_string(), &mallory);
        }
        assert!(subscriptions.subscribers("same").len() * weight("same") <= MAX_BYTES);
    }
}
