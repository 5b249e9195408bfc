//! The stores of the process: written by watches and by answers to our own writes, read by everything else.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug, Formatter},
    future::ready,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, api::ApiResource};
use mcp_plan::{
    config::{Config, Configs},
    reference::{CONFIG_MAP, Data, Reference, Referrer, SECRET, missing, token},
    workload::{ChildKind, ChildRef},
};
use portcullis::controller::{ControllerError, Key, Observed, Store, Stored as _};

use super::{
    Trace,
    live::{self, Outsider},
};
use crate::{
    admission::Known,
    config::{ConfigKind, erased},
    workload::Workload,
};

/// The token by which workloads are found that leave it to the operator where their sessions are.
pub(super) const OPEN_SESSIONS: &str = "open-sessions";

/// One store per kind.
pub struct Stores {
    /// The stores of our own kinds, by their names.
    kinds: BTreeMap<Cow<'static, str>, Arc<dyn KindStore>>,
    /// Kinds without a store.
    outsiders: Vec<Outsider>,
    children: BTreeMap<ChildKind, Arc<Store<Trace>>>,
    secrets: Arc<Store<Trace>>,
    ready: AtomicBool,
    /// Set before the first list.
    client: OnceLock<Client>,
}

/// The objects of one of our own kinds.
pub(super) trait KindStore: Debug + Send + Sync {
    /// The kind, as the API server serves it.
    fn resource(&self) -> ApiResource;
    /// Whether there is one of this name.
    fn exists(&self, key: &Key) -> bool;
    /// The names of those that are found by `token`.
    fn find(&self, namespace: &str, token: &str) -> Vec<String>;
    /// The one of this name, where the kind is a configuration and it decodes.
    fn config(&self, key: &Key) -> Option<Arc<dyn Config>>;
    /// The names of those that may have this child.
    fn parents(&self, namespace: &str, child: &ChildRef) -> Vec<String>;
    /// The names of those that this child may be made for.
    fn makers(&self, namespace: &str, child: &ChildRef) -> Vec<String>;
    /// The names of those that refer to the object of this kind and name, or may, as the API server has them now.
    fn ask<'a>(&'a self, client: &'a Client, kind: &'a str, key: &'a Key) -> BoxFuture<'a, Names>;
}

/// Names, or why there are none.
type Names = Result<Vec<String>, ControllerError>;

/// Workloads.
#[derive(Debug)]
pub(super) struct Workloads<W>(pub(super) Arc<Store<Observed<W>>>);

/// Configurations.
#[derive(Debug)]
pub(super) struct ConfigStore<K>(pub(super) Arc<Store<Observed<K>>>);

impl<W: Workload> KindStore for Workloads<W> {
    fn resource(&self) -> ApiResource {
        ApiResource::erase::<W>(&())
    }

    fn exists(&self, key: &Key) -> bool {
        self.0.get(&key.namespace, &key.name).is_some()
    }

    fn find(&self, namespace: &str, token: &str) -> Vec<String> {
        self.0.find(namespace, token).iter().map(|found| found.name().to_owned()).collect()
    }

    fn config(&self, _: &Key) -> Option<Arc<dyn Config>> {
        None
    }

    fn parents(&self, namespace: &str, child: &ChildRef) -> Vec<String> {
        let named = W::parents(child).into_iter().filter(|name| self.0.get(namespace, name).is_some());
        named.map(str::to_owned).collect()
    }

    fn makers(&self, namespace: &str, child: &ChildRef) -> Vec<String> {
        if W::OBSOLETE.contains(&child.kind) { Vec::new() } else { self.parents(namespace, child) }
    }

    fn ask<'a>(&'a self, client: &'a Client, kind: &'a str, key: &'a Key) -> BoxFuture<'a, Names> {
        live::referrers::<W>(client, &key.namespace, kind, &key.name, live::PAGE).boxed()
    }
}

impl<K: ConfigKind> KindStore for ConfigStore<K> {
    fn resource(&self) -> ApiResource {
        ApiResource::erase::<K>(&())
    }

    fn exists(&self, key: &Key) -> bool {
        self.0.get(&key.namespace, &key.name).is_some()
    }

    fn find(&self, namespace: &str, token: &str) -> Vec<String> {
        self.0.find(namespace, token).iter().map(|found| found.name().to_owned()).collect()
    }

    fn config(&self, key: &Key) -> Option<Arc<dyn Config>> {
        let config = self.0.get(&key.namespace, &key.name)?.object.clone().ok()?;
        Some(erased(config))
    }

    fn parents(&self, _: &str, _: &ChildRef) -> Vec<String> {
        Vec::new()
    }

    fn makers(&self, _: &str, _: &ChildRef) -> Vec<String> {
        Vec::new()
    }

    /// A configuration refers to no object of ours.
    fn ask<'a>(&'a self, _: &'a Client, _: &'a str, _: &'a Key) -> BoxFuture<'a, Names> {
        ready(Ok(Vec::new())).boxed()
    }
}

impl Known for Stores {
    fn exists(&self, namespace: &str, kind: &str, name: &str) -> Option<bool> {
        if !self.is_ready() {
            return None;
        }
        match kind {
            SECRET => Some(self.secrets.get(namespace, name).is_some()),
            CONFIG_MAP => Some(self.children(ChildKind::ConfigMap).get(namespace, name).is_some()),
            _ => Some(self.kinds.get(kind)?.exists(&Key::new(namespace, name))),
        }
    }

    fn is_missing<'a>(&'a self, namespace: &'a str, reference: &'a Reference) -> BoxFuture<'a, bool> {
        let resource = match &*reference.kind {
            SECRET => Some(ApiResource::erase::<Secret>(&())),
            CONFIG_MAP => Some(ApiResource::erase::<ConfigMap>(&())),
            kind => self.kinds.get(kind).map(|store| store.resource()),
        };
        let asked = self.client.get().cloned().zip(resource);
        async move {
            let Some((client, resource)) = asked else { return false };
            live::is_missing(client, &resource, namespace, &reference.name).await
        }
        .boxed()
    }

    fn texts<'a>(&'a self, namespace: &'a str, references: &'a [Reference]) -> BoxFuture<'a, Data> {
        let named = references.iter().filter(|it| it.is_text && it.kind == CONFIG_MAP).map(|it| &*it.name);
        let maps = self.client.get().cloned().map(|client| live::config_maps(client, namespace, named.collect()));
        async move {
            match maps {
                Some(maps) => Data { config_maps: maps.await, ..Data::default() },
                None => Data::default(),
            }
        }
        .boxed()
    }

    fn configs(&self, namespace: &str, references: &[Reference]) -> Configs {
        self.configs(namespace, references)
    }

    fn makers(&self, namespace: &str, child: &ChildRef) -> Vec<Referrer> {
        if self.is_ready() { self.each(|store| store.makers(namespace, child)) } else { Vec::new() }
    }
}

// === impl Stores ===

impl Debug for Stores {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl Stores {
    pub(super) fn new(
        kinds: impl IntoIterator<Item = (Cow<'static, str>, Arc<dyn KindStore>)>,
        outsiders: Vec<Outsider>,
    ) -> Self {
        Self {
            kinds: kinds.into_iter().collect(),
            outsiders,
            children: ChildKind::ALL.into_iter().map(|kind| (kind, Arc::default())).collect(),
            secrets: Arc::default(),
            ready: AtomicBool::new(false),
            client: OnceLock::new(),
        }
    }

    /// The store of a kind of children.
    #[allow(clippy::missing_panics_doc, reason = "every kind has a store")]
    pub(super) fn children(&self, kind: ChildKind) -> &Arc<Store<Trace>> {
        &self.children[&kind]
    }

    /// Secrets: their metadata.
    pub(super) fn secrets(&self) -> &Arc<Store<Trace>> {
        &self.secrets
    }

    /// True once every store has had its first list: before that, absence means nothing.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Lets the API server be asked for what is not here.
    pub(super) fn ask_with(&self, client: Client) {
        let _ = self.client.set(client);
    }

    pub(super) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// The objects that refer to this one, themselves.
    pub(super) fn referrers(&self, kind: &str, key: &Key) -> Vec<Referrer> {
        self.found(&key.namespace, &token(kind, &key.name))
    }

    /// The workloads of a namespace that leave it to the operator where their sessions are.
    pub(super) fn open_sessions(&self, namespace: &str) -> Vec<Referrer> {
        self.found(namespace, OPEN_SESSIONS)
    }

    /// The workloads that refer to this object, or may, as the API server has them now.
    pub(super) async fn ask_for_referrers(
        &self,
        client: &Client,
        kind: &str,
        key: &Key,
    ) -> Result<Vec<Referrer>, ControllerError> {
        let mut all = Vec::new();
        for (of, store) in &self.kinds {
            let names = store.ask(client, kind, key).await?;
            all.extend(names.into_iter().map(|name| Referrer { kind: of.clone().into_owned(), name }));
        }
        for outsider in self.outsiders.iter().filter(|it| it.of == kind) {
            let names = outsider.referrers(client, &key.namespace, &key.name).await?;
            all.extend(names.into_iter().map(|name| Referrer { kind: outsider.kind.to_owned(), name }));
        }
        Ok(all)
    }

    /// The objects that refer to this one, themselves or by what they refer to.
    pub(super) fn affected(&self, kind: &str, key: &Key) -> BTreeSet<Referrer> {
        let mut all = BTreeSet::new();
        let mut next = self.referrers(kind, key);
        while let Some(referrer) = next.pop() {
            if all.insert(referrer.clone()) {
                next.extend(self.referrers(&referrer.kind, &Key::new(key.namespace.clone(), referrer.name)));
            }
        }
        all
    }

    /// Whether this object of ours exists.
    pub(super) fn knows(&self, namespace: &str, Referrer { kind, name }: &Referrer) -> bool {
        self.kinds.get(&**kind).is_some_and(|store| store.exists(&Key::new(namespace, &**name)))
    }

    /// The workloads that may have this child.
    pub(super) fn parents(&self, namespace: &str, child: &ChildRef) -> Vec<Referrer> {
        self.each(|store| store.parents(namespace, child))
    }

    /// The configurations among `references` that exist and decode.
    pub(super) fn configs(&self, namespace: &str, references: &[Reference]) -> Configs {
        let found = references.iter().filter_map(|reference| {
            let config = self.kinds.get(&reference.kind)?.config(&Key::new(namespace, &*reference.name))?;
            Some(((reference.kind.clone(), reference.name.clone()), config))
        });
        found.collect()
    }

    /// Whether the API server has, or may have, one of our own objects among `references` that is not here: its watch lags behind.
    pub(super) async fn lag(&self, namespace: &str, references: &[Reference]) -> bool {
        let own = |kind: &str, name: &str| Some(self.kinds.get(kind)?.exists(&Key::new(namespace, name)));
        for reference in missing(references, own) {
            if !self.is_missing(namespace, reference).await {
                return true;
            }
        }
        false
    }

    fn found(&self, namespace: &str, token: &str) -> Vec<Referrer> {
        self.each(|store| store.find(namespace, token))
    }

    fn each(&self, find: impl Fn(&dyn KindStore) -> Vec<String>) -> Vec<Referrer> {
        let each = self.kinds.iter().flat_map(|(kind, store)| {
            find(&**store).into_iter().map(|name| Referrer { kind: kind.clone().into_owned(), name })
        });
        each.collect()
    }
}
