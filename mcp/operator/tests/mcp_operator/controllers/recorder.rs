//! Everything that happens to the workloads of a kind, their Deployments and proxy pods in a namespace, in the API server's
//! own order.

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

use super::support::{DEADLINE, Objects};

/// A kind of workloads with proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarded {
    Server,
    RemoteProxy,
}

/// One of the kinds that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Recorded {
    Workload,
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
    guarded: Guarded,
    first: Moment,
    writes: Arc<Mutex<Vec<Write>>>,
    watches: Vec<JoinHandle<()>>,
}

impl Guarded {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Server => "MCPServer",
            Self::RemoteProxy => "MCPRemoteProxy",
        }
    }

    pub(crate) fn api(self, objects: &Objects) -> Api<DynamicObject> {
        objects.dynamic("toolhive.stacklok.dev/v1beta1", self.kind())
    }

    /// The value of the label `app` of its proxies' pods.
    pub(crate) fn app(self) -> String {
        self.kind().to_lowercase()
    }

    /// Of the pods, those of its proxies.
    pub(crate) fn pods(self) -> ListParams {
        ListParams::default().labels(&format!("app={}", self.app()))
    }
}

impl Recorded {
    const ALL: [Self; 3] = [Self::Workload, Self::Deployment, Self::Pod];

    fn api(self, guarded: Guarded, objects: &Objects) -> Api<DynamicObject> {
        match self {
            Self::Workload => guarded.api(objects),
            Self::Deployment => objects.dynamic("apps/v1", "Deployment"),
            Self::Pod => objects.dynamic("v1", "Pod"),
        }
    }

    fn list(self, guarded: Guarded) -> ListParams {
        if self == Self::Pod { guarded.pods() } else { ListParams::default() }
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
    pub(crate) async fn start(objects: &Objects, guarded: Guarded) -> Self {
        let writes: Arc<Mutex<Vec<Write>>> = Arc::default();
        let mut watches = Vec::new();
        let mut first = Moment::default();
        for kind in Recorded::ALL {
            let (api, list) = (kind.api(guarded, objects), kind.list(guarded));
            let now = api.list(&list).await.unwrap();
            let from = now.metadata.resource_version.unwrap();
            for object in now.items {
                first.after(write(kind, object, true));
            }
            let seen = writes.clone();
            watches.push(tokio::spawn(async move {
                let params = WatchParams { label_selector: list.label_selector, ..WatchParams::default() }.timeout(290);
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
        Self { objects: objects.clone(), guarded, first, writes, watches }
    }

    /// Every moment from the start until now, in order.
    pub(crate) async fn moments(self) -> Vec<Moment> {
        // It has seen all when it has seen what is there now.
        wait_until("the recorder to have seen all", DEADLINE, || async {
            let mut now = BTreeSet::new();
            for kind in Recorded::ALL {
                let (api, list) = (kind.api(self.guarded, &self.objects), kind.list(self.guarded));
                let list = api.list(&list).await.unwrap();
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

    /// The workload of this name.
    pub(crate) fn workload(&self, name: &str) -> Option<&Value> {
        self.0.get(&(Recorded::Workload, name.to_owned()))
    }

    /// The proxy's Deployment of this workload.
    pub(crate) fn deployment(&self, workload: &str) -> Option<&Value> {
        self.0.get(&(Recorded::Deployment, workload.to_owned()))
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
