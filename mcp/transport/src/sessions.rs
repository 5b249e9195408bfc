//! A bounded table of sessions that forgets what nobody uses.

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use mcp_http::{Body, json};
use mcp_wire::{ErrorBody, Message, code, headers::SESSION_ID};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sessions by the id that the client knows. Each use renews it; a session in use (somebody holds its value) does not
/// expire. When the table is full the session unused for longest goes.
#[derive(Debug)]
pub(crate) struct Sessions<T> {
    ttl: Duration,
    max: usize,
    entries: Mutex<HashMap<String, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    used: Instant,
}

/// The session that a request names.
#[derive(Debug)]
pub(crate) enum Named<T> {
    /// It names none.
    Nothing,
    /// One that is open, and the client's id for it.
    Known(HeaderValue, Arc<T>),
    /// One that is not, or not any more.
    Unknown,
}

/// What a client whose session is unknown is told: it must initialize again (MCP 2025-11-25, Session Management).
pub(crate) fn not_found(message: Option<&Message<'_>>) -> Response<Body> {
    let error = ErrorBody::new(code::SESSION_NOT_FOUND, "Session not found").id(message.and_then(Message::id));
    json(StatusCode::NOT_FOUND, error.encode())
}

impl<T> Entry<T> {
    fn expired(&self, now: Instant, ttl: Duration) -> bool {
        Arc::strong_count(&self.value) == 1 && now.duration_since(self.used) >= ttl
    }
}

impl<T> Sessions<T> {
    pub(crate) fn new(ttl: Duration, max: usize) -> Self {
        Self { ttl, max: max.max(1), entries: Mutex::new(HashMap::new()) }
    }

    /// The session that a request with these headers names, renewed.
    pub(crate) fn named(&self, headers: &HeaderMap) -> Named<T> {
        let Some(id) = headers.get(SESSION_ID) else { return Named::Nothing };
        match id.to_str().ok().and_then(|id| self.get(id)) {
            Some(value) => Named::Known(id.clone(), value),
            None => Named::Unknown,
        }
    }

    /// The session, renewed; `None` when it is unknown or expired.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<T>> {
        self.get_at(id, Instant::now())
    }

    fn get_at(&self, id: &str, now: Instant) -> Option<Arc<T>> {
        let mut entries = self.lock();
        let entry = entries.get_mut(id)?;
        if entry.expired(now, self.ttl) {
            entries.remove(id);
            return None;
        }
        entry.used = now;
        Some(Arc::clone(&entry.value))
    }

    /// The session, without renewing it.
    pub(crate) fn peek(&self, id: &str) -> Option<Arc<T>> {
        self.lock().get(id).map(|entry| Arc::clone(&entry.value))
    }

    /// Adds a session and returns those that had to go: the expired ones and, in a full table, the one unused for longest.
    pub(crate) fn insert(&self, id: String, value: Arc<T>) -> Vec<(String, Arc<T>)> {
        self.insert_at(id, value, Instant::now())
    }

    fn insert_at(&self, id: String, value: Arc<T>, now: Instant) -> Vec<(String, Arc<T>)> {
        let mut entries = self.lock();
        let mut gone = Vec::new();
        // Looking at every entry is dear, so it waits until the table has grown to a power of two or is full.
        if entries.len() >= self.max || entries.len().is_power_of_two() {
            gone.extend(
                entries.extract_if(|_, entry| entry.expired(now, self.ttl)).map(|(id, entry)| (id, entry.value)),
            );
        }
        if entries.len() >= self.max && !entries.contains_key(&id) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.used).map(|(id, _)| id.clone());
            if let Some((id, entry)) = oldest.and_then(|id| entries.remove_entry(&id)) {
                gone.push((id, entry.value));
            }
        }
        entries.insert(id, Entry { value, used: now });
        gone
    }

    pub(crate) fn remove(&self, id: &str) -> Option<Arc<T>> {
        self.lock().remove(id).map(|entry| entry.value)
    }

    /// Calls `visit` for every session, in no order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&T)) {
        // The order of the table does not matter to anybody who is told the same thing as everybody else.
        #[expect(clippy::iter_over_hash_type)]
        for entry in self.lock().values() {
            visit(&entry.value);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(100);

    #[test]
    fn a_session_lives_as_long_as_it_is_used_and_no_longer() {
        let sessions = Sessions::new(TTL, 8);
        let start = Instant::now();
        sessions.insert_at("a".into(), Arc::new(1), start);
        assert_eq!(sessions.get_at("a", start + TTL / 2).as_deref(), Some(&1));
        assert_eq!(sessions.get_at("a", start + TTL).as_deref(), Some(&1), "use renewed it");
        let held = sessions.get_at("a", start + TTL);
        assert!(sessions.get_at("a", start + TTL * 3).is_some(), "somebody holds it");
        drop(held);
        assert!(sessions.get_at("a", start + TTL * 5).is_none());
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn a_full_table_forgets_the_session_unused_for_longest() {
        let sessions = Sessions::new(TTL, 2);
        let start = Instant::now();
        sessions.insert_at("a".into(), Arc::new(1), start);
        sessions.insert_at("b".into(), Arc::new(2), start + Duration::from_secs(1));
        sessions.get_at("a", start + Duration::from_secs(2));
        let gone = sessions.insert_at("c".into(), Arc::new(3), start + Duration::from_secs(3));
        assert_eq!(gone, [("b".to_owned(), Arc::new(2))]);
        assert!(sessions.get_at("a", start + Duration::from_secs(4)).is_some());
    }
}
