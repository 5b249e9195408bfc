//! The objects of a session in a cluster: they are put in, and taken out.

use std::cell::RefCell;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::mark::{Fate, Mark, OF};

/// The longest time of one call.
const CALL: Duration = Duration::from_secs(10);

/// A cluster-scoped kind that sessions put into the cluster.
pub(super) trait Put:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}
impl Put for ValidatingWebhookConfiguration {}
impl Put for MutatingWebhookConfiguration {}

/// One call, with its deadline.
pub(super) async fn call<T>(what: &str, call: impl Future<Output = Result<T, kube::Error>>) -> anyhow::Result<T> {
    match timeout(CALL, call).await {
        Ok(answer) => answer.with_context(|| format!("cannot {what}")),
        Err(_) => bail!("cannot {what}: the API server did not answer within {} s", CALL.as_secs()),
    }
}

/// A session's hold on a cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    /// The mark of this session.
    pub(super) me: Mark,
}

impl Cluster {
    fn api<K: Put>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn manager(&self) -> String {
        format!("{}-dev", self.me.of)
    }

    /// Takes out what former sessions of ours left, and what expired sessions of others left. Returns what it did, for
    /// people; and which session of ours may be at work, its time not being over.
    pub(super) async fn sweep(&self) -> anyhow::Result<(Vec<String>, Option<Mark>)> {
        let (now, alive) = (Timestamp::now(), RefCell::new(None));
        let goes = |mark: &Mark| {
            let fate = mark.fate(&self.me, now);
            if fate == Fate::Own && mark.expires.is_none_or(|expires| expires > now) {
                alive.replace(Some(mark.clone()));
            }
            fate != Fate::Live
        };
        let done = self.take_out(goes).await?;
        Ok((done, alive.into_inner()))
    }

    fn sessions(&self) -> ListParams {
        ListParams::default().labels(&format!("{OF}={}", self.me.of))
    }

    /// Takes out what this session put in.
    pub(super) async fn remove(&self) -> anyhow::Result<Vec<String>> {
        self.take_out(|mark| mark.session == self.me.session).await
    }

    async fn take_out(&self, goes: impl Fn(&Mark) -> bool) -> anyhow::Result<Vec<String>> {
        let mut done = Vec::new();
        self.delete::<MutatingWebhookConfiguration>(&goes, &mut done).await?;
        self.delete::<ValidatingWebhookConfiguration>(&goes, &mut done).await?;
        Ok(done)
    }

    async fn delete<K: Put>(&self, goes: &impl Fn(&Mark) -> bool, done: &mut Vec<String>) -> anyhow::Result<()> {
        let (api, kind) = (self.api::<K>(), K::kind(&()));
        for object in call(&format!("list objects of kind {kind}"), api.list(&self.sessions())).await? {
            let Some(mark) = Mark::of(object.meta()).filter(|mark| goes(mark)) else { continue };
            let name = object.name_any();
            // An object that replaced it since belongs to someone else.
            let this = Preconditions { uid: object.uid(), ..Preconditions::default() };
            let what = format!("delete {kind} {name}");
            match call(&what, api.delete(&name, &DeleteParams::default().preconditions(this))).await {
                Ok(_) => done.push(format!("removed {kind} {name} of {}", mark.description())),
                Err(error) if is_code(&error, &[404, 409]) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) async fn put<K: Put>(&self, object: &K) -> anyhow::Result<()> {
        let (kind, name) = (K::kind(&()), object.name_any());
        let params = PostParams { field_manager: Some(self.manager()), ..PostParams::default() };
        match call(&format!("create {kind} {name}"), self.api::<K>().create(&params, object)).await {
            Err(error) if is_code(&error, &[409]) => Err(error).with_context(|| {
                format!("{kind} {name} is there, and is no session's: give another --owner, or delete it")
            }),
            result => result.map(drop),
        }
    }

    /// The configurations of the installed operator, among these names, that are called beside ours.
    pub(super) async fn installed(&self, validating: &str, mutating: &str) -> anyhow::Result<Vec<String>> {
        let what = "read the installed configurations";
        let mut found = Vec::new();
        let configurations = self.api::<ValidatingWebhookConfiguration>();
        let there = call(what, configurations.get_opt(validating)).await?;
        found.extend(there.map(|_| format!("ValidatingWebhookConfiguration {validating}")));
        let configurations = self.api::<MutatingWebhookConfiguration>();
        let there = call(what, configurations.get_opt(mutating)).await?;
        found.extend(there.map(|_| format!("MutatingWebhookConfiguration {mutating}")));
        Ok(found)
    }
}

/// Whether the API server answered with one of these codes.
pub(super) fn is_code(error: &anyhow::Error, codes: &[u16]) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if codes.contains(&status.code))
}
