//! A store of one kind: filled by watches, and by the answers to our own writes.
//!
//! Our own writes are seen at once (read your writes): a plan made before the watch delivers them would write again.
//! Versions order the two sources. Per watch, events arrive in order of `resourceVersion`, so an answer that is not
//! newer than the last event has already been delivered, or overtaken by a deletion.
//!
//! An event older than the answer to our write does not change the store, but may be another client's change: such a
//! change [is overtaken](Change::is_overtaken), and its object is enqueued once more.
//!
//! A list starts a new order, since a restore of etcd sets versions back. It replaces every known object whatever its
//! version, except answers to our writes that began after the list.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

/// An object that a store can index by name and by token.
pub trait Stored: Send + Sync + 'static {
    /// `metadata.namespace`.
    fn namespace(&self) -> &str;
    /// `metadata.name`.
    fn name(&self) -> &str;
    /// `metadata.resourceVersion` as a number.
    fn version(&self) -> u64;
    /// Tokens to find it by within its namespace, for example what it refers to or belongs to.
    fn index_keys(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A change of one object from `old` to `new`; `None` means that it does not exist.
#[derive(Debug)]
pub struct Change<T> {
    /// The stored object before the change.
    pub old: Option<Arc<T>>,
    /// The stored object after the change.
    pub new: Option<Arc<T>>,
    /// The version that the watch delivered; `u64::MAX` for a deletion and for an object from a list.
    pub delivered: u64,
}

impl<T: Stored> Change<T> {
    /// Whether the store has a newer object already, by the answer to the controller's own write: the
    /// delivered change may then be another client's.
    pub(super) fn is_overtaken(&self) -> bool {
        self.new.as_ref().is_some_and(|new| new.version() > self.delivered)
    }
}

/// The objects of one kind that the operator watches.
#[derive(Debug)]
pub struct Store<T> {
    inner: RwLock<Inner<T>>,
}

/// A logical clock: it is incremented when a list starts and when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListEpoch(u64);

#[derive(Debug)]
struct Inner<T> {
    namespaces: HashMap<String, Namespace<T>>,
    /// The number of lists that have begun plus that of lists that have ended, over all watches.
    lists: u64,
    /// The progress of each watch, by its namespace; empty for all.
    watches: HashMap<String, Progress<T>>,
}

#[derive(Debug)]
struct Namespace<T> {
    objects: BTreeMap<String, Arc<T>>,
    /// Each token with the name of an object that has it. Most tokens belong to one: a set of names for each would be
    /// ten times as large.
    tokens: BTreeSet<(String, String)>,
}

#[derive(Debug)]
struct Progress<T> {
    /// The highest version delivered since the last list.
    seen: u64,
    /// When the last list began.
    since: ListEpoch,
    /// When the last list ended.
    complete: ListEpoch,
    listing: Option<Listing<T>>,
}

/// A list that is under way.
#[derive(Debug)]
struct Listing<T> {
    objects: Vec<Arc<T>>,
    /// The latest version of each object that one of our writes, begun after the list, has returned.
    written: BTreeMap<(String, String), u64>,
}

// === impl Store ===

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { inner: RwLock::new(Inner { namespaces: HashMap::new(), lists: 0, watches: HashMap::new() }) }
    }
}

impl<T: Stored> Store<T> {
    /// The object of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.read(|inner| inner.namespaces.get(namespace)?.objects.get(name).cloned())
    }

    /// The objects of `namespace` that have `token`, sorted by name.
    pub fn find(&self, namespace: &str, token: &str) -> Vec<Arc<T>> {
        self.read(|inner| {
            let namespace = inner.namespaces.get(namespace)?;
            let carriers = namespace.tokens.range((token.to_owned(), String::new())..);
            let names = carriers.take_while(|(carried, _)| carried == token).map(|(_, name)| name);
            Some(names.filter_map(|name| namespace.objects.get(name).cloned()).collect())
        })
        .unwrap_or_default()
    }

    /// The objects of all namespaces that have `token`.
    pub fn find_everywhere(&self, token: &str) -> Vec<Arc<T>> {
        let namespaces = self.read(|inner| Some(inner.namespaces.keys().cloned().collect::<Vec<_>>()));
        namespaces.unwrap_or_default().iter().flat_map(|namespace| self.find(namespace, token)).collect()
    }

    /// Namespace and name of every object.
    pub fn keys(&self) -> Vec<(String, String)> {
        self.read(|inner| {
            let all = inner.namespaces.iter();
            Some(all.flat_map(|(ns, objects)| objects.objects.keys().map(|n| (ns.clone(), n.clone()))).collect())
        })
        .unwrap_or_default()
    }

    /// Every object.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let all = |inner: &Inner<T>| inner.namespaces.values().flat_map(|all| all.objects.values().cloned()).collect();
        self.read(|inner| Some(all(inner))).unwrap_or_default()
    }

    /// Replaces all objects, as a list of all namespaces does.
    pub(crate) fn fill(&self, objects: impl IntoIterator<Item = T>) {
        self.list_begins("");
        objects.into_iter().for_each(|object| self.listed("", object));
        self.list_ends("");
    }

    /// Returns the epoch to pass to [`written`](Self::written). Call it before the write.
    pub(super) fn begin(&self) -> ListEpoch {
        ListEpoch(self.inner.read().unwrap_or_else(PoisonError::into_inner).lists)
    }

    /// Applies the answer to our own write, unless the watch has delivered a later version. The answer to a write that
    /// began before the last list is ignored, since its order is unknown: the watch delivers it. The watch does not
    /// report a change that this returns.
    pub(super) fn written(&self, object: T, begun: ListEpoch) -> Option<Change<T>> {
        self.write(|inner| {
            let watch = if inner.watches.contains_key(object.namespace()) { object.namespace() } else { "" };
            let known = inner.current(&object).is_some();
            let Some(progress) = inner.watches.get_mut(watch) else { return inner.insert(Arc::new(object)) };
            let (fresh, newer) = (begun >= progress.since, object.version() > progress.seen);
            match &mut progress.listing {
                Some(listing) if fresh => {
                    let latest = listing.written.entry(key(&object)).or_default();
                    if object.version() < *latest {
                        return None;
                    }
                    *latest = object.version();
                    Some(inner.replace(Arc::new(object)))
                }
                Some(_) if newer => inner.insert(Arc::new(object)),
                // The write overlapped the last list and the list lacks the object: it may have been deleted since.
                // Ignore the answer; the watch delivers anything newer.
                None if newer && fresh && (known || begun >= progress.complete) => inner.insert(Arc::new(object)),
                _ => None,
            }
        })
    }

    /// Removes every object, after the watches have ended.
    pub(super) fn clear(&self) {
        self.write(|inner| {
            inner.namespaces.clear();
            inner.watches.clear();
        });
    }

    /// Replaces an object if the stored one has the same version.
    pub(super) fn amended(&self, object: T) {
        self.write(|inner| {
            if inner.current(&object).is_some_and(|current| current.version() == object.version()) {
                inner.insert(Arc::new(object));
            }
        });
    }

    /// Takes an object that a watch (of one namespace, or of all: "") delivered.
    pub(super) fn delivered(&self, watch: &str, object: T) -> Change<T> {
        self.write(|inner| {
            let (progress, delivered) = (inner.progress(watch), object.version());
            progress.seen = progress.seen.max(delivered);
            let known = inner.current(&object).cloned();
            let change = inner.insert(Arc::new(object));
            change.unwrap_or_else(|| Change { old: known.clone(), new: known, delivered })
        })
    }

    /// Takes the deletion of an object that a watch delivered.
    pub(super) fn deleted(&self, watch: &str, object: &T) -> Option<Change<T>> {
        self.write(|inner| {
            let progress = inner.progress(watch);
            progress.seen = progress.seen.max(object.version());
            // A deletion event carries the version of the deletion: a newer object was created afterwards.
            let current = inner.namespaces.get(object.namespace())?.objects.get(object.name())?;
            if current.version() > object.version() {
                return None;
            }
            let old = inner.remove(object.namespace(), object.name())?;
            Some(Change { old: Some(old), new: None, delivered: u64::MAX })
        })
    }

    /// Starts a list of a watch.
    pub(super) fn list_begins(&self, watch: &str) {
        self.write(|inner| {
            inner.lists += 1;
            let since = ListEpoch(inner.lists);
            let progress = inner.progress(watch);
            progress.since = since;
            progress.listing = Some(Listing { objects: Vec::new(), written: BTreeMap::new() });
        });
    }

    /// Takes an object of the list that is under way.
    pub(super) fn listed(&self, watch: &str, object: T) {
        self.write(|inner| {
            if let Some(listing) = &mut inner.progress(watch).listing {
                listing.objects.push(Arc::new(object));
            }
        });
    }

    /// Replaces the stored objects with those of the list, and removes the others. Newer answers to writes that began
    /// after the list stay. Returns every change.
    pub(super) fn list_ends(&self, watch: &str) -> Vec<Change<T>> {
        self.write(|inner| {
            inner.lists += 1;
            let complete = ListEpoch(inner.lists);
            let progress = inner.progress(watch);
            let Some(Listing { objects, written }) = progress.listing.take() else { return Vec::new() };
            progress.complete = complete;
            let before = progress.seen;
            let seen = objects.iter().map(|object| object.version()).max().unwrap_or_default();
            progress.seen = seen;
            let listed: BTreeMap<_, _> = objects.into_iter().map(|object| (key(&*object), object)).collect();
            let is_later = |key: &(String, String), version: u64| {
                version > listed.get(key).map_or(seen, |object| object.version())
            };
            let ours = |key: &(String, String)| written.get(key).is_some_and(|version| is_later(key, *version));
            let gone: Vec<(String, String)> = inner
                .namespaces
                .iter()
                .filter(|(namespace, _)| watch.is_empty() || namespace.as_str() == watch)
                .flat_map(|(namespace, all)| all.objects.keys().map(|name| (namespace.clone(), name.clone())))
                .filter(|key| !listed.contains_key(key) && !ours(key))
                .collect();
            let mut changes: Vec<Change<T>> = gone
                .iter()
                .filter_map(|(namespace, name)| inner.remove(namespace, name))
                .map(|old| Change { old: Some(old), new: None, delivered: u64::MAX })
                .collect();
            for (key, object) in &listed {
                let known = inner.current(&**object).cloned();
                changes.push(if ours(key) {
                    Change { old: known.clone(), new: known, delivered: object.version() }
                } else {
                    // A list does not show changes between the last event and our own write.
                    let overtaken = known.is_some_and(|known| known.version() > before);
                    let delivered = if overtaken { before } else { u64::MAX };
                    Change { delivered, ..inner.replace(object.clone()) }
                });
            }
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
        let new = || Progress { seen: 0, since: ListEpoch::default(), complete: ListEpoch::default(), listing: None };
        self.watches.entry(watch.to_owned()).or_insert_with(new)
    }

    /// Returns the stored object with the name of `object`.
    fn current(&self, object: &T) -> Option<&Arc<T>> {
        self.namespaces.get(object.namespace())?.objects.get(object.name())
    }

    /// Puts `object` in place of an older one; `None` when what is there is newer.
    fn insert(&mut self, object: Arc<T>) -> Option<Change<T>> {
        if self.current(&*object).is_some_and(|current| current.version() > object.version()) {
            return None;
        }
        Some(self.replace(object))
    }

    /// Puts `object` in place of what is there, whatever version that has.
    fn replace(&mut self, object: Arc<T>) -> Change<T> {
        let old = self.remove(object.namespace(), object.name());
        let namespace = self
            .namespaces
            .entry(object.namespace().to_owned())
            .or_insert_with(|| Namespace { objects: BTreeMap::new(), tokens: BTreeSet::new() });
        for token in object.index_keys() {
            namespace.tokens.insert((token, object.name().to_owned()));
        }
        namespace.objects.insert(object.name().to_owned(), object.clone());
        Change { old, delivered: object.version(), new: Some(object) }
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let all = self.namespaces.get_mut(namespace)?;
        let old = all.objects.remove(name)?;
        for token in old.index_keys() {
            all.tokens.remove(&(token, name.to_owned()));
        }
        if all.objects.is_empty() {
            self.namespaces.remove(namespace);
        }
        Some(old)
    }
}

fn key(object: &impl Stored) -> (String, String) {
    (object.namespace().to_owned(), object.name().to_owned())
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
        fn index_keys(&self) -> Vec<String> {
            self.3.iter().map(|token| (*token).to_owned()).collect()
        }
    }

    fn version(store: &Store<Thing>, name: &str) -> Option<u64> {
        store.get("ns", name).map(|thing| thing.2)
    }

    #[test]
    fn our_write_is_seen_at_once_and_not_undone_by_an_older_event() {
        let store = Store::default();
        store.delivered("", Thing("ns", "a", 5, &[]));
        store.written(Thing("ns", "a", 9, &[]), store.begin());
        assert_eq!(version(&store, "a"), Some(9));
        let late = store.delivered("", Thing("ns", "a", 7, &[]));
        assert_eq!((late.new.map(|new| new.2), late.delivered), (Some(9), 7), "the store was past it");
        assert_eq!(version(&store, "a"), Some(9));
        store.delivered("", Thing("ns", "a", 11, &[]));
        assert_eq!(version(&store, "a"), Some(11));
    }

    #[test]
    fn a_write_answered_after_its_deletion_is_not_stored() {
        let store = Store::default();
        store.deleted("", &Thing("ns", "a", 12, &[]));
        store.written(Thing("ns", "a", 10, &[]), store.begin());
        assert_eq!(version(&store, "a"), None);
        // An object that was created again after the deletion stays, also when the deletion arrives late.
        store.written(Thing("ns", "a", 15, &[]), store.begin());
        assert!(store.deleted("", &Thing("ns", "a", 13, &[])).is_none());
        assert_eq!(version(&store, "a"), Some(15));
    }

    #[test]
    fn a_store_drops_objects_that_an_etcd_restore_removed() {
        let store = Store::default();
        for (name, at) in [("a", 900), ("b", 901), ("c", 902)] {
            store.delivered("", Thing("ns", name, at, &[]));
        }
        let before = store.begin();
        store.list_begins("");
        store.listed("", Thing("ns", "a", 40, &[]));
        store.listed("", Thing("ns", "b", 41, &[]));
        // ListEpoch before the list: the cluster may have forgotten it.
        store.written(Thing("ns", "c", 903, &[]), before);
        // ListEpoch after it: the watch has yet to bring it.
        store.written(Thing("ns", "b", 43, &[]), store.begin());
        store.written(Thing("ns", "d", 44, &[]), store.begin());
        store.list_ends("");
        let versions = |store: &Store<Thing>| ["a", "b", "c", "d"].map(|name| version(store, name));
        assert_eq!(versions(&store), [Some(40), Some(43), None, Some(44)]);
        store.delivered("", Thing("ns", "a", 45, &[]));
        // An answer that comes late, and one of now.
        store.written(Thing("ns", "c", 904, &[]), before);
        store.written(Thing("ns", "a", 46, &[]), store.begin());
        assert_eq!(versions(&store), [Some(46), Some(43), None, Some(44)]);
    }

    #[test]
    fn a_write_answered_after_a_possibly_later_list_is_not_stored() {
        let store = Store::default();
        store.list_begins("");
        let begun = store.begin();
        // It was made and deleted before the list was answered.
        store.list_ends("");
        store.written(Thing("ns", "a", 10, &[]), begun);
        assert_eq!(version(&store, "a"), None);
        store.written(Thing("ns", "a", 12, &[]), store.begin());
        assert_eq!(version(&store, "a"), Some(12));
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
    fn a_relist_replaces_only_the_objects_of_its_namespace() {
        let store = Store::default();
        store.delivered("ns", Thing("ns", "a", 5, &[]));
        store.delivered("other", Thing("other", "b", 50, &[]));
        // The other watch's progress says nothing about this namespace.
        store.written(Thing("ns", "c", 9, &[]), store.begin());
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
