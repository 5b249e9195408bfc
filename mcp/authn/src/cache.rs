//! The tokens that were found valid, so that a signature is verified once and not for every call.
//!
//! It is not moka, which keeps the tokens of `mcp-credentials`: a lookup, which is in the way of every call, takes five times as long there (200 ns for
//! 40, and 450 for 70 when two threads look at once). What makes up most of this module would stay: a token counts until the keys change, and nobody's
//! tokens make another caller's forgotten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mcp_middleware::{Fingerprint, Identity};
use mcp_store::Bound;

use crate::keys::KeySet;

/// By so many locks threads seldom meet at one.
const SHARDS: usize = 64;
/// Tokens that each half of a shard remembers, 8,192 together, and the bytes of claims that they may have, 32 MiB
/// together: some providers name every group of a user.
const HALF: usize = 64;
const HALF_BYTES: usize = 256 << 10;
/// The part of each half that is remembered of one caller: one that asks its provider for tokens without end does not
/// make others' forgotten.
const SHARE: usize = 4;

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) identity: Arc<Identity>,
    /// When the token is taken no longer, in Unix seconds; `None` where its provider did not say.
    pub(crate) expires: Option<i64>,
}

/// A token that was found valid.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    pub(crate) caller: Caller,
    /// Until when this is remembered, in Unix seconds.
    pub(crate) until: i64,
    /// The length of its claims in bytes.
    pub(crate) length: usize,
    /// The keys under which its signature was verified; `None` where the provider was asked.
    pub(crate) keys: Option<Arc<KeySet>>,
}

/// The tokens that were used last.
#[derive(Debug)]
pub(crate) struct Cache(Vec<Mutex<Shard>>);

/// When `young` is full, it takes the place of `old`: what was not used meanwhile is forgotten.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<Fingerprint, Verified>,
    /// Bytes of the claims in `young`.
    length: usize,
    old: HashMap<Fingerprint, Verified>,
}

impl Caller {
    /// Whether both are one subject of one issuer.
    fn is(&self, other: &Self) -> bool {
        let (one, other) = (&self.identity, &other.identity);
        one.subject == other.subject && one.claims.get("iss") == other.claims.get("iss")
    }
}

impl Verified {
    /// Whether it counts at `now`, while the provider's keys are `keys`: one may have been withdrawn since.
    fn holds(&self, now: i64, keys: Option<&Arc<KeySet>>) -> bool {
        let same = |own: &Arc<KeySet>| keys.is_some_and(|keys| Arc::ptr_eq(own, keys));
        now < self.until && self.keys.as_ref().is_none_or(same)
    }
}

impl Cache {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    /// Returns the caller of a token that is in the cache and still valid.
    pub(crate) fn get(&self, token: &Fingerprint, now: i64, keys: Option<&Arc<KeySet>>) -> Option<Caller> {
        let mut shard = self.shard(token).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verified) = shard.young.get(token) {
            return verified.holds(now, keys).then(|| verified.caller.clone());
        }
        let verified = shard.old.remove(token).filter(|verified| verified.holds(now, keys))?;
        let caller = verified.caller.clone();
        shard.insert(*token, verified);
        Some(caller)
    }

    pub(crate) fn insert(&self, token: Fingerprint, verified: Verified) {
        self.shard(&token).lock().unwrap_or_else(PoisonError::into_inner).insert(token, verified);
    }

    /// The tokens that are remembered.
    pub(crate) fn bound(&self) -> Bound {
        let lengths = self.0.iter().map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.len() + shard.old.len()
        });
        Bound { name: "verified_tokens", used: lengths.sum(), limit: 2 * HALF * SHARDS }
    }

    fn shard(&self, token: &Fingerprint) -> &Mutex<Shard> {
        &self.0[usize::from(token.bytes()[0]) % SHARDS]
    }
}

impl Shard {
    fn insert(&mut self, token: Fingerprint, verified: Verified) {
        let own = |other: &Verified| other.caller.is(&verified.caller);
        let lengths = self.young.values().filter(|other| own(other)).map(|other| other.length);
        let (count, length) = lengths.fold((0, 0), |(count, sum), length| (count + 1, sum + length));
        if count >= HALF / SHARE || count > 0 && length + verified.length > HALF_BYTES / SHARE {
            // The tokens among them that are in use are verified once more.
            self.young.retain(|_, other| !own(other));
            self.length -= length;
        }
        if self.young.len() >= HALF || self.length + verified.length > HALF_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.length = 0;
        }
        self.length += verified.length;
        self.young.insert(token, verified);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn verified(until: i64, keys: Option<&Arc<KeySet>>) -> Verified {
        of("alice", until, keys)
    }

    fn of(subject: &str, until: i64, keys: Option<&Arc<KeySet>>) -> Verified {
        let identity = Arc::new(Identity { subject: subject.to_owned(), ..Identity::default() });
        let caller = Caller { identity, expires: Some(until) };
        Verified { caller, until, length: 1 << 10, keys: keys.cloned() }
    }

    #[test]
    fn a_token_is_forgotten_when_it_expires_or_the_keys_change() {
        let set = || Arc::new(KeySet::parse(Bytes::from_static(br#"{"keys":[]}"#)).unwrap());
        let (keys, others) = (set(), set());
        for (entry, now, under, known) in [
            (verified(10, Some(&keys)), 9, Some(&keys), true),
            (verified(10, Some(&keys)), 10, Some(&keys), false),
            (verified(10, Some(&keys)), 9, Some(&others), false),
            (verified(10, Some(&keys)), 9, None, false),
            (verified(10, None), 9, Some(&others), true),
            (verified(10, None), 10, None, false),
        ] {
            let (cache, token) = (Cache::new(), Fingerprint::of("a"));
            cache.insert(token, entry.clone());
            assert_eq!(cache.get(&token, now, under).is_some(), known, "{entry:?} at {now}");
            assert!(cache.get(&Fingerprint::of("b"), now, under).is_none());
        }
    }

    #[test]
    fn a_token_that_is_used_stays_and_the_number_is_bounded() {
        let (cache, used) = (Cache::new(), Fingerprint::of("used"));
        cache.insert(used, verified(10, None));
        for number in 0..SHARDS * HALF * 4 {
            let name = number.to_string();
            cache.insert(Fingerprint::of(&name), of(&name, 10, None));
            assert!(cache.get(&used, 0, None).is_some(), "after {number} others");
        }
        let sizes = cache.0.iter().map(|shard| {
            let shard = shard.lock().unwrap();
            shard.young.len() + shard.old.len()
        });
        assert!(sizes.sum::<usize>() <= SHARDS * HALF * 2);
    }

    #[test]
    fn long_claims_leave_room_for_fewer_tokens() {
        const LENGTH: usize = 60 << 10;
        let cache = Cache::new();
        for number in 0..SHARDS * HALF {
            let name = number.to_string();
            let verified = Verified { length: LENGTH, ..of(&name, 10, None) };
            let token = Fingerprint::of(&name);
            cache.insert(token, verified);
            assert!(cache.get(&token, 0, None).is_some(), "the last is remembered");
        }
        for shard in &cache.0 {
            let shard = shard.lock().unwrap();
            assert!(shard.young.len() * LENGTH <= HALF_BYTES && shard.old.len() * LENGTH <= HALF_BYTES);
        }
    }

    #[test]
    fn one_callers_tokens_do_not_make_others_forgotten() {
        let (cache, quiet) = (Cache::new(), ["a", "b", "c"]);
        for name in quiet {
            cache.insert(Fingerprint::of(name), of(name, 10, None));
        }
        for (length, count) in [(0, SHARDS * HALF * 8), (60 << 10, SHARDS * 32)] {
            for number in 0..count {
                let verified = Verified { length, ..of("mallory", 10, None) };
                cache.insert(Fingerprint::of(&format!("{length} {number}")), verified);
            }
            for name in quiet {
                assert!(cache.get(&Fingerprint::of(name), 0, None).is_some(), "{name} after tokens of {length} bytes");
            }
        }
    }
}
