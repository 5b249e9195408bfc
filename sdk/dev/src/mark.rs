//! The mark of an object in the cluster: its owner, and the time of its end.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Annotation: the session.
const SESSION: &str = "portcullis.dev/dev-session";
/// Annotation: when the session ends (RFC 3339).
const EXPIRES: &str = "portcullis.dev/dev-expires";
/// Label: the owner of the session.
const OWNER: &str = "portcullis.dev/dev-owner";
/// Label: the release whose webhooks the session serves.
pub(super) const OF: &str = "portcullis.dev/dev-of";
/// The time after its end from which the session of another machine counts as over: clocks differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Written on every object that a session puts into a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The release that is served.
    pub(super) of: String,
    /// The person.
    pub(super) owner: String,
    /// One start of `dev`.
    pub(super) session: String,
    /// When it ends; `None` where what is written does not read.
    pub(super) expires: Option<Timestamp>,
}

/// The fate of an object that a session left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A former session of the same person: it goes.
    Own,
    /// Its time is over: it goes.
    Expired,
    /// It stays.
    Live,
}

impl Mark {
    /// The mark of an object; `None` when it is no session's.
    pub(super) fn of(meta: &ObjectMeta) -> Option<Self> {
        let find = |key| meta.labels.iter().chain(&meta.annotations).find_map(|map| map.get(key).cloned());
        Some(Self {
            session: find(SESSION)?,
            of: find(OF).unwrap_or_default(),
            owner: find(OWNER).unwrap_or_default(),
            expires: find(EXPIRES).and_then(|time| time.parse().ok()),
        })
    }

    /// The part by which sessions of a release are found.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(OF.to_owned(), self.of.clone()), (OWNER.to_owned(), self.owner.clone())])
    }

    /// The rest of it.
    pub(super) fn annotations(&self) -> BTreeMap<String, String> {
        let expires = self.expires.map(|time| (EXPIRES.to_owned(), time.to_string()));
        BTreeMap::from([(SESSION.to_owned(), self.session.clone())]).into_iter().chain(expires).collect()
    }

    /// The fate of an object with this mark when `me` starts.
    pub(super) fn fate(&self, me: &Self, now: Timestamp) -> Fate {
        if self.of == me.of && self.owner == me.owner {
            return Fate::Own;
        }
        match self.expires {
            Some(expires) if now.duration_since(expires) > SKEW => Fate::Expired,
            // A time that does not read is left to its writer.
            _ => Fate::Live,
        }
    }

    /// The owner and the end, for people.
    pub(super) fn description(&self) -> String {
        let until = self.expires.map_or_else(|| "an unknown time".to_owned(), |time| time.to_string());
        format!("{} (until {until})", self.owner)
    }
}

/// A person's name as part of the names of objects: lower-case letters, digits and `-`, 30 of them at most.
pub(super) fn owner(name: &str) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(plain).take(30).collect();
    let name = name.trim_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(owner: &str, expires: &str) -> Mark {
        let (of, session) = ("op".to_owned(), "s".to_owned());
        Mark { of, session, owner: owner.to_owned(), expires: expires.parse().ok() }
    }

    // K6
    #[test]
    fn only_expired_sessions_and_ones_own_are_swept() {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let me = mark("ann", "2026-01-01T13:00:00Z");
        for (owner, expires, fate) in [
            ("ann", "2026-01-01T12:59:00Z", Fate::Own),
            ("ann", "2026-01-01T10:00:00Z", Fate::Own),
            ("ann", "nonsense", Fate::Own),
            ("bob", "2026-01-01T12:00:01Z", Fate::Live),
            // Clocks are not the same everywhere.
            ("bob", "2026-01-01T11:56:00Z", Fate::Live),
            ("bob", "2026-01-01T11:54:59Z", Fate::Expired),
            ("bob", "nonsense", Fate::Live),
        ] {
            assert_eq!(mark(owner, expires).fate(&me, now), fate, "{owner} {expires}");
        }
        let other = Mark { of: "other".to_owned(), ..mark("ann", "2026-01-01T12:59:00Z") };
        assert_eq!(other.fate(&me, now), Fate::Live, "another operator's session is not mine");
    }

    #[test]
    fn a_mark_round_trips_and_an_object_without_one_has_no_owner() {
        let mark = mark("ann", "2026-01-01T13:00:00Z");
        let meta =
            ObjectMeta { labels: Some(mark.labels()), annotations: Some(mark.annotations()), ..ObjectMeta::default() };
        assert_eq!(Mark::of(&meta), Some(mark.clone()));
        let labels = ObjectMeta { labels: Some(mark.labels()), ..ObjectMeta::default() };
        assert_eq!(Mark::of(&labels), None);
    }

    #[test]
    fn a_person_becomes_part_of_a_name_that_kubernetes_takes() {
        for (name, expected) in [
            ("ann", Some("ann")),
            ("Ann.Lee@example.com", Some("ann-lee-example-com")),
            ("DOMAIN\\ann", Some("domain-ann")),
            ("_", None),
            ("", None),
            ("a-name-that-is-much-longer-than-it-need-be", Some("a-name-that-is-much-longer-tha")),
        ] {
            assert_eq!(owner(name).as_deref(), expected, "{name}");
            assert!(expected.is_none_or(portcullis_manifest::names::is_label));
        }
    }
}
