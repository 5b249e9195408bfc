//! Following one object.

use std::fmt::Debug;

use futures::Stream;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// The object of this name, whenever it has changed or may have; `None` while there is none. The first says how it is
/// now. Errors are told, and tried again ever more slowly.
pub(super) fn follow<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = Result<Option<K>, watcher::Error>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch_object(api, name).default_backoff()
}
