//! A pod that calls an MCP server again and again, and tells what each call came to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, LogParams};
use portcullis_testing::{wait_for_object, wait_until};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::Namespace;
use crate::node::{DEADLINE, POD_IMAGE, container};

/// What one call came to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// The tool answered.
    Answered {
        /// With this text.
        text: String,
        /// After this long.
        milliseconds: u64,
    },
    /// A gate or the server refused it.
    Refused {
        /// JSON-RPC error code.
        code: i64,
        /// JSON-RPC error message.
        text: String,
    },
    /// Nobody answered.
    Lost {
        /// What the client saw instead.
        text: String,
    },
}

impl Outcome {
    /// Whether the tool answered with this text.
    pub fn answers(&self, wanted: &str) -> bool {
        matches!(self, Self::Answered { text, .. } if text == wanted)
    }
}

/// A pod that calls the tool `greet` at a steady rate, whether earlier calls were answered or not.
#[derive(Debug)]
pub struct Caller {
    name: String,
    pods: Api<Pod>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    following: JoinHandle<()>,
}

impl Namespace {
    /// Starts a client in a pod: `rate` calls a second of the MCP server at `url`, in the name of `greeted`.
    ///
    /// # Panics
    /// When the pod does not start.
    pub async fn caller(&self, era: &str, rate: u32, url: &str, greeted: &str) -> Caller {
        self.caller_as(era, rate, url, greeted, None).await
    }

    /// [`caller`](Self::caller) with a token of its ServiceAccount for this audience, as the kubelet mounts it.
    ///
    /// # Panics
    /// When the pod does not start.
    pub async fn caller_as(&self, era: &str, rate: u32, url: &str, greeted: &str, audience: Option<&str>) -> Caller {
        let name = format!("client-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let rate = rate.to_string();
        let token = if audience.is_some() { &["-token", "/token/token"][..] } else { &[] };
        let arguments = [&["call", "-era", era, "-rate", &rate], token, &[url, greeted]].concat();
        let mut client = container("client", POD_IMAGE, &arguments);
        let volumes = audience.map(|audience| {
            let token = json!({ "serviceAccountToken": { "audience": audience, "path": "token" } });
            json!({ "name": "token", "projected": { "sources": [token] } })
        });
        client["volumeMounts"] =
            json!(Vec::from_iter(audience.map(|_| json!({ "name": "token", "mountPath": "/token" }))));
        self.apply([json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": "client" } },
            "spec": {
                "containers": [client], "volumes": Vec::from_iter(volumes), "restartPolicy": "Never",
                "automountServiceAccountToken": false, "enableServiceLinks": false,
            },
        })])
        .await;
        let pods: Api<Pod> = self.api();
        wait_for_object(&pods, &name, "the client to run", DEADLINE, |pod| {
            pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
        })
        .await;
        let log = pods.log_stream(&name, &LogParams { follow: true, ..LogParams::default() }).await;
        let mut lines = log.unwrap_or_else(|error| panic!("no log of {name}: {error}")).lines();
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&outcomes);
        let following = tokio::spawn(async move {
            let mut last = String::new();
            loop {
                let line = match lines.try_next().await {
                    Ok(Some(line)) => line,
                    Ok(None) => break,
                    Err(error) => panic!("the client's log broke off after '{last}': {error}"),
                };
                let outcome =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("the client printed '{line}': {error}"));
                written.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                last = line;
            }
        });
        Caller { name, pods, outcomes, following }
    }
}

impl Caller {
    fn seen(&self) -> MutexGuard<'_, Vec<Outcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first call from now on that comes to what `wanted` accepts.
    ///
    /// # Panics
    /// When none does in time.
    pub async fn next(&self, what: &str, wanted: impl Fn(&Outcome) -> bool) -> Outcome {
        let begun = self.seen().len();
        wait_until(what, DEADLINE, || async {
            self.seen().get(begun..)?.iter().find(|outcome| wanted(outcome)).cloned()
        })
        .await
    }

    /// What calls came to so far.
    pub fn outcomes(&self) -> Vec<Outcome> {
        self.seen().clone()
    }

    /// Ends the client when its last call is done, and returns what all calls came to.
    ///
    /// # Panics
    /// When its log does not end.
    pub async fn finish(self) -> Vec<Outcome> {
        if let Err(error) = self.pods.delete(&self.name, &DeleteParams::default().grace_period(70)).await {
            panic!("cannot delete {}: {error}", self.name);
        }
        let ended = tokio::time::timeout(DEADLINE, self.following).await;
        ended.unwrap_or_else(|_| panic!("{} does not end", self.name)).unwrap_or_else(|error| panic!("{error}"));
        std::mem::take(&mut *self.outcomes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
