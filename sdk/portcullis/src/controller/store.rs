//! A store of one kind: fed by watches, and by the answers to our own writes.
//!
//! Our own writes are seen at once (read your writes): a plan made before the watch delivers them would write again.
//! Versions order the two sources. Per watch, events arrive in order of `resourceVersion`, so an answer that is not
//! newer than the last event has already been delivered, or overtaken by a deletion.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

/// What a store needs to know about its objects.
pub trait Stored: Send + Sync + 'static {
    /// `metadata.namespace`.
    fn namespace(&self) -> &str;
    /// `metadata.name`.
    fn name(&self) -> &str;
    /// `metadata.resourceVersion` as a number.
    fn version(&self) -> u64;
    /// Tokens it can be found by within its namespace: what it refers to, what it belongs to.
    fn tokens(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One object's step from `old` to `new`; `None` is "does not exist".
#[derive(Debug)]
pub struct Change<T> {
    /// What the store held.
    pub old: Option<Arc<T>>,
    /// What it holds now.
    pub new: Option<Arc<T>>,
}

/// All objects of one kind that the operator may see.
#[derive(Debug)]
pub struct Store<T> {
    inner: RwLock<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    namespaces: HashMap<String, Namespace<T>>,
    /// Per watch (by the namespace it is restricted to; empty for all), how far it has come.
    watches: HashMap<String, Progress<T>>,
}

#[derive(Debug)]
struct Namespace<T> {
    objects: BTreeMap<String, Arc<T>>,
    /// Each token with the name of an object that carries it. Most tokens are carried by one: a set of names for each
    /// would be ten times as large.
    tokens: BTreeSet<(String, String)>,
}

#[derive(Debug)]
struct Progress<T> {
    /// The highest version delivered.
    seen: u64,
    /// Objects of a relist that is under way.
    listing: Option<Vec<Arc<T>>>,
}

// === impl Store ===

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { inner: RwLock::new(Inner { namespaces: HashMap::new(), watches: HashMap::new() }) }
    }
}

impl<T: Stored> Store<T> {
    /// The object of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.read(|inner| inner.namespaces.get(namespace)?.objects.get(name).cloned())
    }

    /// The objects of `namespace` that carry `token`, by name.
    pub fn find(&self, namespace: &str, token: &str) -> Vec<Arc<T>> {
        self.read(|inner| {
            let namespace = inner.namespaces.get(namespace)?;
            let carriers = namespace.tokens.range((token.to_owned(), String::new())..);
            let names = carriers.take_while(|(carried, _)| carried == token).map(|(_, name)| name);
            Some(names.filter_map(|name| namespace.objects.get(name).cloned()).collect())
        })
        .unwrap_or_default()
    }

    /// The objects that carry `token`, in every namespace.
    pub fn find_everywhere(&self, token: &str) -> Vec<Arc<T>> {
        let namespaces = self.read(|inner| Some(inner.namespaces.keys().cloned().collect::<Vec<_>>()));
        namespaces.unwrap_or_default().iter().flat_map(|namespace| self.find(namespace, token)).collect()
    }

    /// Every object's namespace and name.
    pub fn keys(&self) -> Vec<(String, String)> {
        self.read(|inner| {
            let all = inner.namespaces.iter();
            Some(all.flat_map(|(ns, objects)| objects.objects.keys().map(|n| (ns.clone(), n.clone()))).collect())
        })
        .unwrap_or_default()
    }

    /// Takes the answer to our own write, unless the watch has come past it. The watch will not tell of this change.
    pub(super) fn written(&self, object: T) -> Option<Change<T>> {
        self.write(|inner| {
            let watch = if inner.watches.contains_key(object.namespace()) { object.namespace() } else { "" };
            let seen = inner.watches.get(watch).map_or(0, |progress| progress.seen);
            if object.version() > seen { inner.insert(Arc::new(object)) } else { None }
        })
    }

    /// Forgets everything: no watch fills it any more.
    pub(super) fn clear(&self) {
        self.write(|inner| *inner = Inner { namespaces: HashMap::new(), watches: HashMap::new() });
    }

    /// Takes what we learned about the object whose version this is; another version is left as it is.
    pub(super) fn amended(&self, object: T) {
        self.write(|inner| {
            let current = inner.namespaces.get(object.namespace()).and_then(|all| all.objects.get(object.name()));
            if current.is_some_and(|current| current.version() == object.version()) {
                inner.insert(Arc::new(object));
            }
        });
    }

    /// A watch (of one namespace, or of all: "") delivered an object.
    pub(super) fn delivered(&self, watch: &str, object: T) -> Option<Change<T>> {
        self.write(|inner| {
            let progress = inner.progress(watch);
            progress.seen = progress.seen.max(object.version());
            inner.insert(Arc::new(object))
        })
    }

    /// A watch delivered the deletion of an object.
    pub(super) fn deleted(&self, watch: &str, object: &T) -> Option<Change<T>> {
        self.write(|inner| {
            let progress = inner.progress(watch);
            progress.seen = progress.seen.max(object.version());
            // A deletion event carries the version of the deletion: what is newer was made afterwards.
            let current = inner.namespaces.get(object.namespace())?.objects.get(object.name())?;
            if current.version() > object.version() {
                return None;
            }
            let old = inner.remove(object.namespace(), object.name())?;
            Some(Change { old: Some(old), new: None })
        })
    }

    /// A watch begins to list anew.
    pub(super) fn list_begins(&self, watch: &str) {
        self.write(|inner| inner.progress(watch).listing = Some(Vec::new()));
    }

    /// An object of the list under way.
    pub(super) fn listed(&self, watch: &str, object: T) {
        self.write(|inner| inner.progress(watch).listing.get_or_insert_default().push(Arc::new(object)));
    }

    /// The list is complete: what it does not hold is gone. Returns every change.
    pub(super) fn list_ends(&self, watch: &str) -> Vec<Change<T>> {
        self.write(|inner| {
            let progress = inner.progress(watch);
            let listed = progress.listing.take().unwrap_or_default();
            let newest = listed.iter().map(|object| object.version()).max().unwrap_or_default();
            progress.seen = progress.seen.max(newest);
            let kept: BTreeSet<(String, String)> =
                listed.iter().map(|object| (object.namespace().to_owned(), object.name().to_owned())).collect();
            let gone: Vec<(String, String)> = inner
                .namespaces
                .iter()
                .filter(|(namespace, _)| watch.is_empty() || namespace.as_str() == watch)
                .flat_map(|(namespace, all)| all.objects.keys().map(|name| (namespace.clone(), name.clone())))
                .filter(|key| !kept.contains(key))
                .collect();
            let mut changes: Vec<Change<T>> = gone
                .iter()
                .filter_map(|(namespace, name)| inner.remove(namespace, name))
                .map(|old| Change { old: Some(old), new: None })
                .collect();
            changes.extend(listed.into_iter().filter_map(|object| inner.insert(object)));
            changes
        })
    }

    fn read<R>(&self, body: impl FnOnce(&Inner<T>) -> Option<R>) -> Option<R> {
        body(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<R>(&self, body: impl FnOnce(&mut Inner<T>) -> R) -> R {
        body(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Inner ===

impl<T: Stored> Inner<T> {
    fn progress(&mut self, watch: &str) -> &mut Progress<T> {
        self.watches.entry(watch.to_owned()).or_insert_with(|| Progress { seen: 0, listing: None })
    }

    /// Puts `object` in place of an older one; `None` when what is there is newer.
    fn insert(&mut self, object: Arc<T>) -> Option<Change<T>> {
        let current = self.namespaces.get(object.namespace()).and_then(|all| all.objects.get(object.name()));
        if current.is_some_and(|current| current.version() > object.version()) {
            return None;
        }
        let old = self.remove(object.namespace(), object.name());
        let namespace = self
            .namespaces
            .entry(object.namespace().to_owned())
            .or_insert_with(|| Namespace { objects: BTreeMap::new(), tokens: BTreeSet::new() });
        for token in object.tokens() {
            namespace.tokens.insert((token, object.name().to_owned()));
        }
        namespace.objects.insert(object.name().to_owned(), object.clone());
        Some(Change { old, new: Some(object) })
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let all = self.namespaces.get_mut(namespace)?;
        let old = all.objects.remove(name)?;
        for token in old.tokens() {
            all.tokens.remove(&(token, name.to_owned()));
        }
        if all.objects.is_empty() {
            self.namespaces.remove(namespace);
        }
        Some(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Thing(&'static str, &'static str, u64, &'static [&'static str]);

    impl Stored for Thing {
        fn namespace(&self) -> &str {
            self.0
        }
        fn name(&self) -> &str {
            self.1
        }
        fn version(&self) -> u64 {
            self.2
        }
        fn tokens(&self) -> Vec<String> {
            self.3.iter().map(|token| (*token).to_owned()).collect()
        }
    }

    fn version(store: &Store<Thing>, name: &str) -> Option<u64> {
        store.get("ns", name).map(|thing| thing.2)
    }

    #[test]
    fn our_own_write_is_seen_before_the_watch_delivers_it_and_an_older_event_does_not_undo_it() {
        let store = Store::default();
        store.delivered("", Thing("ns", "a", 5, &[]));
        store.written(Thing("ns", "a", 9, &[]));
        assert_eq!(version(&store, "a"), Some(9));
        assert!(store.delivered("", Thing("ns", "a", 7, &[])).is_none());
        assert_eq!(version(&store, "a"), Some(9));
        assert!(store.delivered("", Thing("ns", "a", 11, &[])).is_some());
        assert_eq!(version(&store, "a"), Some(11));
    }

    #[test]
    fn a_write_answered_after_its_deletion_was_delivered_leaves_no_ghost() {
        let store = Store::default();
        store.deleted("", &Thing("ns", "a", 12, &[]));
        store.written(Thing("ns", "a", 10, &[]));
        assert_eq!(version(&store, "a"), None);
        // One that was made again after the deletion stays, also when the deletion arrives late.
        store.written(Thing("ns", "a", 15, &[]));
        assert!(store.deleted("", &Thing("ns", "a", 13, &[])).is_none());
        assert_eq!(version(&store, "a"), Some(15));
    }

    #[test]
    fn what_we_learned_about_a_version_counts_for_that_version_only() {
        let store = Store::default();
        store.delivered("", Thing("ns", "a", 5, &[]));
        store.amended(Thing("ns", "a", 5, &["deleting"]));
        assert_eq!(store.find("ns", "deleting").len(), 1);
        store.delivered("", Thing("ns", "a", 6, &[]));
        store.amended(Thing("ns", "a", 5, &["deleting"]));
        store.amended(Thing("ns", "b", 5, &["deleting"]));
        assert_eq!(store.find("ns", "deleting").len(), 0);
    }

    #[test]
    fn each_namespace_has_its_own_watch_and_a_relist_replaces_only_what_it_covers() {
        let store = Store::default();
        store.delivered("ns", Thing("ns", "a", 5, &[]));
        store.delivered("other", Thing("other", "b", 50, &[]));
        // The other watch's progress says nothing about this namespace.
        store.written(Thing("ns", "c", 9, &[]));
        assert_eq!(version(&store, "c"), Some(9));
        store.list_begins("ns");
        store.listed("ns", Thing("ns", "d", 20, &[]));
        assert_eq!(version(&store, "a"), Some(5), "the old list is in force until the new one is complete");
        let mut changes: Vec<_> = store
            .list_ends("ns")
            .into_iter()
            .map(|change| (change.old.map(|old| old.1), change.new.map(|new| new.1)))
            .collect();
        changes.sort();
        assert_eq!(changes, [(None, Some("d")), (Some("a"), None), (Some("c"), None)]);
        assert!(store.get("other", "b").is_some());
    }

    #[test]
    fn objects_are_found_by_what_they_refer_to_now() {
        let store = Store::default();
        store.delivered("", Thing("ns", "a", 1, &["secret/x", "secret/y"]));
        store.delivered("", Thing("ns", "b", 2, &["secret/x"]));
        store.delivered("", Thing("else", "c", 3, &["secret/x"]));
        let names = |token: &str| store.find("ns", token).iter().map(|thing| thing.1).collect::<Vec<_>>();
        assert_eq!(names("secret/x"), ["a", "b"]);
        store.delivered("", Thing("ns", "a", 4, &["secret/y"]));
        assert_eq!((names("secret/x"), names("secret/y")), (vec!["b"], vec!["a"]));
        store.deleted("", &Thing("ns", "b", 5, &[]));
        assert_eq!(names("secret/x"), Vec::<&str>::new());
        assert_eq!(store.find_everywhere("secret/x").iter().map(|thing| thing.1).collect::<Vec<_>>(), ["c"]);
        assert_eq!(store.keys().len(), 2);
    }
}
