//! A pod that calls an MCP server again and again, and logs each result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, LogParams};
use portcullis_testing::{wait_for_object, wait_until};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Namespace;
use crate::node::{DEADLINE, POD_IMAGE, container};

/// The outcome of one call.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// The tool answered.
    Answered {
        /// With this text.
        text: String,
    },
    /// A gate or the server refused it.
    Refused {
        /// JSON-RPC error code.
        code: i64,
        /// JSON-RPC error message.
        text: String,
    },
    /// There was no answer.
    Lost {
        /// The error that the client saw.
        text: String,
    },
}

impl Outcome {
    /// Whether the tool answered with this text.
    pub fn answers(&self, wanted: &str) -> bool {
        matches!(self, Self::Answered { text } if text == wanted)
    }
}

/// One call.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Call {
    /// When it began, in milliseconds since 1970.
    pub began: u64,
    /// Its duration.
    pub milliseconds: u64,
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The calls of a client.
#[derive(Clone, Debug)]
pub struct Calls<'a> {
    /// The MCP server.
    pub url: &'a str,
    /// The argument of the tool `greet`.
    pub greeted: &'a str,
    /// `legacy` or `stateless`.
    pub era: &'a str,
    /// `streamable`, or `sse`, which is of the legacy era only.
    pub transport: &'a str,
    /// Calls a second.
    pub rate: u32,
    /// The client's timeout for one call, with the session that is opened for it.
    pub patience: Duration,
    /// Show a token of the ServiceAccount for this audience, as the kubelet mounts it.
    pub audience: Option<&'a str>,
    /// Call the tool `inspect` with these arguments, and not `greet`.
    pub inspect: Option<Value>,
}

impl<'a> Calls<'a> {
    /// One a second in the stateless era, to be greeted, for a minute each at most.
    pub fn of(url: &'a str, greeted: &'a str) -> Self {
        let patience = Duration::from_mins(1);
        Self {
            url,
            greeted,
            era: "stateless",
            transport: "streamable",
            rate: 1,
            patience,
            audience: None,
            inspect: None,
        }
    }
}

/// A pod that calls a tool at a steady rate, whether earlier calls were answered or not.
#[derive(Debug)]
pub struct Caller {
    name: String,
    patience: Duration,
    pods: Api<Pod>,
    calls: Arc<Mutex<Vec<Call>>>,
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

    /// [`caller`](Self::caller) with a token of its ServiceAccount for this audience.
    ///
    /// # Panics
    /// When the pod does not start.
    pub async fn caller_as(&self, era: &str, rate: u32, url: &str, greeted: &str, audience: Option<&str>) -> Caller {
        self.call(Calls { era, rate, audience, ..Calls::of(url, greeted) }).await
    }

    /// Starts a client in a pod.
    ///
    /// # Panics
    /// When the pod does not start.
    pub async fn call(&self, calls: Calls<'_>) -> Caller {
        let Calls { url, greeted, era, transport, rate, patience, audience, inspect } = calls;
        let name = format!("client-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let (rate, seconds) = (rate.to_string(), format!("{}s", patience.as_secs()));
        let inspect = inspect.map(|arguments| arguments.to_string());
        let mut arguments = vec!["call", "-era", era, "-transport", transport, "-rate", &rate, "-patience", &seconds];
        if audience.is_some() {
            arguments.extend(["-token", "/token/token"]);
        }
        if let Some(inspect) = &inspect {
            arguments.extend(["-inspect", inspect]);
        }
        arguments.extend([url, greeted]);
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
        let calls = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&calls);
        let following = tokio::spawn(async move {
            let mut last = String::new();
            loop {
                let line = match lines.try_next().await {
                    Ok(Some(line)) => line,
                    Ok(None) => break,
                    Err(error) => panic!("the client's log broke off after '{last}': {error}"),
                };
                let call =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("the client printed '{line}': {error}"));
                written.lock().unwrap_or_else(PoisonError::into_inner).push(call);
                last = line;
            }
        });
        Caller { name, patience, pods, calls, following }
    }
}

impl Caller {
    fn seen(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first call from now on that comes to what `wanted` accepts.
    ///
    /// # Panics
    /// When none does in time.
    pub async fn next(&self, what: &str, wanted: impl Fn(&Outcome) -> bool) -> Outcome {
        self.next_within(DEADLINE, what, wanted).await
    }

    /// [`next`](Self::next) with a deadline of its own.
    ///
    /// # Panics
    /// When none does in time.
    pub async fn next_within(&self, deadline: Duration, what: &str, wanted: impl Fn(&Outcome) -> bool) -> Outcome {
        let begun = self.seen().len();
        wait_until(what, deadline, || async {
            self.seen().get(begun..)?.iter().map(|call| &call.outcome).find(|outcome| wanted(outcome)).cloned()
        })
        .await
    }

    /// Returns when so many calls in a row, all of them from now on, were answered with this text.
    ///
    /// # Panics
    /// When they are not in time.
    pub async fn steady(&self, calls: usize, text: &str) {
        let begun = self.seen().len();
        wait_until(&format!("{calls} answers '{text}' in a row"), DEADLINE, || async {
            let seen = self.seen();
            let last = seen.get(begun.max(seen.len().saturating_sub(calls))..)?;
            (last.len() == calls && last.iter().all(|call| call.outcome.answers(text))).then_some(())
        })
        .await;
    }

    /// The outcomes of all calls so far.
    pub fn outcomes(&self) -> Vec<Outcome> {
        self.seen().iter().map(|call| call.outcome.clone()).collect()
    }

    /// Ends the client when its last call is done, and returns what all calls came to.
    ///
    /// # Panics
    /// When its log does not end.
    pub async fn finish(self) -> Vec<Outcome> {
        self.finish_calls().await.into_iter().map(|call| call.outcome).collect()
    }

    /// [`finish`](Self::finish) with the times of the calls.
    ///
    /// # Panics
    /// When its log does not end.
    pub async fn finish_calls(self) -> Vec<Call> {
        let grace = u32::try_from(self.patience.as_secs()).unwrap_or(u32::MAX).saturating_add(10);
        if let Err(error) = self.pods.delete(&self.name, &DeleteParams::default().grace_period(grace)).await {
            panic!("cannot delete {}: {error}", self.name);
        }
        let ended = tokio::time::timeout(self.patience + DEADLINE, self.following).await;
        ended.unwrap_or_else(|_| panic!("{} does not end", self.name)).unwrap_or_else(|error| panic!("{error}"));
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_client_is_about_one_call() {
        let call = |line: &str| serde_json::from_str::<Call>(line).unwrap();
        let answered = call(r#"{"outcome":"answered","text":"Hi Ada","began":1795456367510,"milliseconds":5}"#);
        assert_eq!((answered.began, answered.milliseconds), (1_795_456_367_510, 5));
        assert!(answered.outcome.answers("Hi Ada") && !answered.outcome.answers("Hi Bob"));
        let refused = call(r#"{"outcome":"refused","code":403,"text":"no","began":1,"milliseconds":5}"#);
        assert_eq!(refused.outcome, Outcome::Refused { code: 403, text: "no".to_owned() });
        let lost = call(r#"{"outcome":"lost","text":"gone","began":1,"milliseconds":5}"#);
        assert_eq!(lost.outcome, Outcome::Lost { text: "gone".to_owned() });
    }
}
