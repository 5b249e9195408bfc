//! Everything that happens to the servers, Deployments and proxy pods of a namespace, in the API server's own order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures::TryStreamExt as _;
use kube::{
    Api,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
};
use portcullis_testing::wait_until;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::support::{DEADLINE, Objects};

/// One of the kinds that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recorded {
    Server,
    Deployment,
    Pod,
}

/// The state of the namespace after one write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment(BTreeMap<(Recorded, String), Value>);

/// An object as one write left it; nothing where that deleted it.
type Write = (u64, (Recorded, String), Option<Value>);

/// Watches a namespace until it is asked what it saw.
pub(crate) struct Recorder {
    objects: Objects,
    first: Moment,
    writes: Arc<Mutex<Vec<Write>>>,
    watches: Vec<JoinHandle<()>>,
}

impl Recorded {
    const ALL: [Self; 3] = [Self::Server, Self::Deployment, Self::Pod];

    fn api(self, objects: &Objects) -> Api<DynamicObject> {
        match self {
            Self::Server => objects.dynamic("toolhive.stacklok.dev/v1beta1", "MCPServer"),
            Self::Deployment => objects.dynamic("apps/v1", "Deployment"),
            Self::Pod => objects.dynamic("v1", "Pod"),
        }
    }

    /// Of the pods those of proxies.
    fn labels(self) -> &'static str {
        if self == Self::Pod { "app=mcpserver" } else { "" }
    }
}

fn version(object: &DynamicObject) -> u64 {
    object.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

fn stated_version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn write(kind: Recorded, object: DynamicObject, there: bool) -> Write {
    let (version, name) = (version(&object), object.metadata.name.clone().unwrap());
    (version, (kind, name), there.then(|| serde_json::to_value(object).unwrap()))
}

// === impl Recorder ===

impl Recorder {
    /// Begins with what is there now.
    pub(crate) async fn start(objects: &Objects) -> Self {
        let writes: Arc<Mutex<Vec<Write>>> = Arc::default();
        let mut watches = Vec::new();
        let mut first = Moment::default();
        for kind in Recorded::ALL {
            let api = kind.api(objects);
            let now = api.list(&ListParams::default().labels(kind.labels())).await.unwrap();
            let from = now.metadata.resource_version.unwrap();
            for object in now.items {
                first.after(write(kind, object, true));
            }
            let seen = writes.clone();
            watches.push(tokio::spawn(async move {
                let params = WatchParams::default().labels(kind.labels()).timeout(290);
                let mut events = std::pin::pin!(api.watch(&params, &from).await.unwrap());
                while let Some(event) = events.try_next().await.unwrap() {
                    let written = match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => write(kind, object, true),
                        WatchEvent::Deleted(object) => write(kind, object, false),
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(error) => panic!("{error}"),
                    };
                    seen.lock().unwrap().push(written);
                }
            }));
        }
        Self { objects: objects.clone(), first, writes, watches }
    }

    /// Every moment from the start until now, in order.
    pub(crate) async fn moments(self) -> Vec<Moment> {
        // It has seen all when it has seen what is there now.
        wait_until("the recorder to have seen all", DEADLINE, || async {
            let mut now = BTreeSet::new();
            for kind in Recorded::ALL {
                let list = kind.api(&self.objects).list(&ListParams::default().labels(kind.labels())).await.unwrap();
                now.extend(list.items.iter().map(|object| version(object).to_string()));
            }
            let mut seen: BTreeSet<String> = self.first.0.values().map(stated_version).collect();
            seen.extend(self.writes.lock().unwrap().iter().map(|write| write.0.to_string()));
            now.is_subset(&seen).then_some(())
        })
        .await;
        for watch in &self.watches {
            assert!(!watch.is_finished(), "a watch ended before its time");
            watch.abort();
        }
        let mut writes = self.writes.lock().unwrap().clone();
        writes.sort_by_key(|write| write.0);
        let mut moments = vec![self.first];
        for write in writes {
            let mut next = moments[moments.len() - 1].clone();
            next.after(write);
            moments.push(next);
        }
        moments
    }
}

// === impl Moment ===

impl Moment {
    fn after(&mut self, (_, key, object): Write) {
        match object {
            Some(object) => self.0.insert(key, object),
            None => self.0.remove(&key),
        };
    }

    /// The server of this name.
    pub(crate) fn server(&self, name: &str) -> Option<&Value> {
        self.0.get(&(Recorded::Server, name.to_owned()))
    }

    /// The proxy's Deployment of this server.
    pub(crate) fn deployment(&self, server: &str) -> Option<&Value> {
        self.0.get(&(Recorded::Deployment, server.to_owned()))
    }

    /// The proxy pods that serve: they are ready, and nobody has asked them to end.
    pub(crate) fn serving(&self) -> Vec<&Value> {
        let pods = self.0.iter().filter(|((kind, _), _)| *kind == Recorded::Pod).map(|(_, pod)| pod);
        let serves = |pod: &&Value| {
            let containers = pod["status"]["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
            pod["metadata"]["deletionTimestamp"].is_null()
                && pod["status"]["phase"] == "Running"
                && containers.iter().all(|container| container["ready"] == true)
        };
        pods.filter(serves).collect()
    }
}
