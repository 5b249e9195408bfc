//! One bounded read.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::api::{ListParams, LogParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::snapshot::{Listed, Look};

/// Timeout of one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most items of one list that are looked at.
const MOST: u32 = 250;
/// The end of a log that is looked at.
const LINES: i64 = 400;
const BYTES: i64 = 256 * 1024;

/// Reads, and counts the requests.
pub(super) struct Reader {
    pub(super) client: Client,
    requests: AtomicUsize,
}

impl Reader {
    pub(super) fn new(client: Client) -> Self {
        Self { client, requests: AtomicUsize::new(0) }
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// One request, of which `needs` says what right it takes.
    async fn request<T>(&self, needs: &str, request: impl Future<Output = kube::Result<T>>) -> Look<T> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match timeout(PATIENCE, request).await {
            Ok(Ok(seen)) => Look::Seen(seen),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => Look::Refused(needs.to_owned()),
            Ok(Err(kube::Error::Api(status))) => Look::Failed(format!("cannot {needs}: {}", status.message)),
            Ok(Err(error)) => Look::Failed(format!("cannot {needs}: {error}")),
            Err(_) => Look::Failed(format!("cannot {needs}: no answer within {} s", PATIENCE.as_secs())),
        }
    }

    /// The first items of a list. A kind that is not installed has none.
    pub(super) async fn list<K>(&self, api: Api<K>, what: impl Display, params: ListParams) -> Look<Listed<K>>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let params = params.limit(MOST);
        let list = async {
            match api.list(&params).await {
                Ok(list) => {
                    let more = list.metadata.continue_.is_some_and(|token| !token.is_empty());
                    Ok(Listed { items: list.items, more })
                }
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Listed::default()),
                Err(error) => Err(error),
            }
        };
        self.request(&format!("list {what}"), list).await
    }

    /// One object; none where there is none.
    pub(super) async fn get<K>(&self, api: Api<K>, what: impl Display, name: &str) -> Look<Option<K>>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.request(&format!("get {what}"), api.get_opt(name)).await
    }

    /// Asks the API server a question that takes a body; nothing is stored.
    pub(super) async fn ask<K>(&self, api: &Api<K>, what: &str, question: &K) -> Look<K>
    where
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let params = PostParams::default();
        self.request(&format!("create {what}"), api.create(&params, question)).await
    }

    /// The last lines of a container's log.
    pub(super) async fn log(&self, namespace: &str, pod: &str, container: Option<&str>) -> Look<Vec<String>> {
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = LogParams {
            container: container.map(str::to_owned),
            tail_lines: Some(LINES),
            limit_bytes: Some(BYTES),
            ..LogParams::default()
        };
        let needs = format!("get pods/log in namespace {namespace}");
        let log = self.request(&needs, api.logs(pod, &params)).await;
        log.map(|text| text.lines().map(str::to_owned).collect())
    }

    /// The API server's clock, to the second.
    pub(super) async fn server_time(&self) -> Option<Timestamp> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let request = http::Request::get("/version").body(kube::client::Body::empty()).ok()?;
        let response = timeout(PATIENCE, self.client.send(request)).await.ok()?.ok()?;
        let date = response.headers().get(http::header::DATE)?.to_str().ok()?;
        rfc2822::parse(date).ok().map(|zoned| zoned.timestamp())
    }
}
