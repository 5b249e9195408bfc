//! Which objects a change wakes.
//!
//! A change that leaves everything a plan reads as it was wakes nobody; our own writes are in the stores before the
//! watch delivers them, so they wake nobody either. That an object wakes itself is its controller's business.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use mcp_plan::{
    reference::{Reference, Referrer, SECRET},
    settings::{DefaultRedis, Settings},
    workload::{ChildKind, ChildRef},
};
use portcullis::controller::{Change, Key, Observed, Queue, Stored as _};

use super::{PodTrace, Stores, Trace, backend_pods::BackendPod};
use crate::{config::ConfigKind, subject::Subject};

/// Turns changes into work.
#[derive(Debug)]
pub(super) struct Wake {
    stores: Arc<Stores>,
    /// The Secrets of the operator's default Redis.
    default_secrets: Vec<String>,
    /// By kind. Set before anything is watched.
    queues: OnceLock<BTreeMap<String, Arc<Queue>>>,
}

// === impl Wake ===

impl Wake {
    pub(super) fn new(stores: Arc<Stores>, settings: &Settings) -> Arc<Self> {
        let secrets = settings.default_redis.iter().flat_map(DefaultRedis::secrets);
        let default_secrets = secrets.map(|secret| secret.name.clone()).collect();
        Arc::new(Self { stores, default_secrets, queues: OnceLock::new() })
    }

    /// The queues of the controllers, by their kinds.
    pub(super) fn reach(&self, queues: BTreeMap<String, Arc<Queue>>) {
        // There is one set of controllers for each of these.
        let _ = self.queues.set(queues);
    }

    /// An object wakes what it refers to, or did before: that tells who refers to it.
    pub(super) fn referrer<K: Subject>(&self, change: &Change<Observed<K>>) {
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let [old, new] = [&change.old, &change.new].map(|side| {
            let object = side.as_ref().and_then(|side| side.object.as_deref().ok());
            object.map(Subject::references).unwrap_or_default().into_iter().map(named).collect::<BTreeSet<_>>()
        });
        self.wake_all(any.namespace(), old.symmetric_difference(&new));
    }

    /// A configuration wakes who refers to it when its spec or its existence changed.
    pub(super) fn config<K: ConfigKind>(&self, change: &Change<Observed<K>>) {
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let [old, new] = [&change.old, &change.new]
            .map(|side| side.as_ref().and_then(|config| config.object.as_deref().ok()).map(K::spec));
        if old != new {
            self.affected(&K::kind(&()), any.namespace(), any.name());
        }
    }

    /// A child wakes the workloads that may have it.
    pub(super) fn child(&self, kind: ChildKind, change: &Change<Trace>) {
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        if kind == ChildKind::ConfigMap {
            self.affected(kind.as_str(), any.namespace(), any.name());
        }
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.same(new)
        {
            return;
        }
        for parent in self.stores.parents(any.namespace(), &ChildRef::new(kind, any.name())) {
            self.wake(any.namespace(), &parent);
        }
    }

    /// A Secret wakes who refers to it, and who uses the default Redis that it belongs to.
    pub(super) fn secret(&self, change: &Change<Trace>) {
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        self.affected(SECRET, any.namespace(), any.name());
        if self.default_secrets.iter().any(|name| name == any.name()) {
            self.wake_all(any.namespace(), self.stores.open_sessions(any.namespace()).iter());
        }
    }

    /// A pod wakes the workload of this kind that it is a proxy of.
    pub(super) fn pod(&self, kind: &str, change: &Change<PodTrace>) {
        let [old, new] =
            [&change.old, &change.new].map(|side| side.as_ref().map(|pod| (pod.workload(), &pod.pod, &pod.container)));
        if old == new {
            return;
        }
        for pod in [&change.old, &change.new].into_iter().flatten() {
            self.workload(kind, pod.namespace(), pod.workload());
        }
    }

    /// A pod wakes the workload of this kind that it is behind the proxy of.
    pub(super) fn backend_pod(&self, kind: &str, change: &Change<BackendPod>) {
        let [old, new] = [&change.old, &change.new].map(|side| side.as_ref().map(|pod| (pod.workload(), &pod.pod)));
        if old == new {
            return;
        }
        for pod in [&change.old, &change.new].into_iter().flatten() {
            self.workload(kind, pod.namespace(), pod.workload());
        }
    }

    /// Wakes the workload that a pod names, where it exists: anyone may give a pod these labels.
    fn workload(&self, kind: &str, namespace: &str, name: &str) {
        let workload = Referrer { kind: kind.to_owned(), name: name.to_owned() };
        if self.stores.knows(namespace, &workload) {
            self.wake(namespace, &workload);
        }
    }

    fn affected(&self, kind: &str, namespace: &str, name: &str) {
        self.wake_all(namespace, self.stores.affected(kind, &Key::new(namespace, name)).iter());
    }

    fn wake_all<'a>(&self, namespace: &str, objects: impl Iterator<Item = &'a Referrer>) {
        objects.for_each(|object| self.wake(namespace, object));
    }

    fn wake(&self, namespace: &str, Referrer { kind, name }: &Referrer) {
        if let Some(queue) = self.queues.get().and_then(|queues| queues.get(kind)) {
            queue.add(Key::new(namespace, &**name));
        }
    }
}

fn named(reference: Reference) -> Referrer {
    Referrer { kind: reference.kind.into_owned(), name: reference.name }
}
