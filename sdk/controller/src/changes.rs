//! The effects of a change: it enqueues objects, and calls the listeners.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::runtime::Predicate;
use prometheus_client::metrics::counter::Counter;

use super::observed::same;
use super::store::ListEpoch;
use super::{Change, Key, Kind, Observed, Queue, Store};

/// A listener that is called for every change of an object of the controller's kind.
pub(super) type Listener<K> = Arc<dyn Fn(&Change<Observed<K>>) + Send + Sync>;
/// The property that has to differ for a change to enqueue its object.
pub(super) type Filter<K> = Arc<dyn Fn(&K) -> Option<u64> + Send + Sync>;

/// The effects of changes of the objects of one controller.
pub(super) struct Changes<K> {
    pub(super) queue: Arc<Queue>,
    pub(super) filter: Option<Filter<K>>,
    pub(super) listener: Option<Listener<K>>,
}

/// The predicate as a function.
pub(super) fn filter<K>(predicate: impl Predicate<K> + Send + Sync + 'static) -> Filter<K> {
    Arc::new(move |object| predicate.hash_property(object))
}

/// Whether the difference between two states of an object counts. An object without such a property counts always.
pub(super) fn differs<K>(filter: Option<&Filter<K>>, old: &K, new: &K) -> bool {
    let Some(filter) = filter else { return true };
    let new = filter(new);
    new.is_none() || filter(old) != new
}

impl<K> Default for Changes<K> {
    fn default() -> Self {
        Self { queue: Arc::default(), filter: None, listener: None }
    }
}

impl<K> Clone for Changes<K> {
    fn clone(&self) -> Self {
        let Self { queue, filter, listener } = self;
        Self { queue: queue.clone(), filter: filter.clone(), listener: listener.clone() }
    }
}

impl<K: Kind> Changes<K> {
    /// Takes a change that the watch delivered.
    pub(super) fn delivered(&self, change: &Change<Observed<K>>) {
        // A deleted object is enqueued too, so that its state is removed.
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let news = !same(change);
        if change.is_overtaken() || (news && self.enqueues(change.old.as_deref(), change.new.as_deref())) {
            self.queue.add(Key::from_object(&**any));
        }
        if news && let Some(listener) = &self.listener {
            listener(change);
        }
    }

    /// A predicate never hides that an object is created, deleted, being deleted or stops decoding, nor a change of
    /// finalizers: what should happen before an object is deleted would never happen.
    fn enqueues(&self, old: Option<&Observed<K>>, new: Option<&Observed<K>>) -> bool {
        let (Some(old), Some(new)) = (old, new) else { return true };
        if (&old.uid, old.deleting, &old.finalizers) != (&new.uid, new.deleting, &new.finalizers) {
            return true;
        }
        match (&old.object, &new.object) {
            (Ok(old), Ok(new)) => differs(self.filter.as_ref(), &**old, &**new),
            _ => true,
        }
    }

    /// Takes the answer to our own write to an object. It enqueues nothing: the watch brings what others changed before
    /// it.
    pub(super) fn answered(&self, answer: Observed<K>, begun: ListEpoch, store: &Store<Observed<K>>, panics: &Counter) {
        let key = Key::from_object(&answer);
        let Some(change) = store.written(answer, begun).filter(|change| !same(change)) else { return };
        if let Some(listener) = &self.listener
            && catch_unwind(AssertUnwindSafe(|| listener(&change))).is_err()
        {
            panics.inc();
            let (kind, namespace, name) = (K::kind(&()), key.namespace, key.name);
            tracing::error!(%kind, namespace, name, "a change callback of this controller panicked; skipping it, the reconcile goes on");
        }
    }
}
