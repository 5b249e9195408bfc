//! What a development session puts into a cluster, and takes out of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use super::entries::Target;
use super::session_mark::{Fate, OF, SessionMark};
use super::stanza::{GiveBack, give_back, lend, managed_without};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(10);
/// How often a CRD that others write too is read again.
const TRIES: u32 = 5;

/// A cluster-scoped kind that sessions put into the cluster.
trait Put: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + Serialize + DeserializeOwned {}
impl Put for ValidatingWebhookConfiguration {}
impl Put for MutatingWebhookConfiguration {}
impl Put for ValidatingAdmissionPolicy {}
impl Put for ValidatingAdmissionPolicyBinding {}

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
    /// Who we are.
    pub(super) me: SessionMark,
    /// Names of the CRDs whose objects the operator converts.
    pub(super) crds: Vec<String>,
    /// Whether webhooks of the operator have CEL rules, which are policies in the cluster.
    pub(super) policies: bool,
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
    pub(super) async fn sweep(&self) -> anyhow::Result<(Vec<String>, Option<SessionMark>)> {
        let (now, alive) = (Timestamp::now(), RefCell::new(None));
        let goes = |mark: &SessionMark| {
            let fate = mark.fate(&self.me, now);
            if fate == Fate::Own && mark.expires.is_none_or(|expires| expires > now) {
                alive.replace(Some(mark.clone()));
            }
            fate != Fate::Live
        };
        let done = self.take_out(goes).await?;
        Ok((done, alive.into_inner()))
    }

    /// What sessions of this release have in the cluster now, by what people know it as, and whose it is.
    pub(super) async fn marks(&self) -> anyhow::Result<BTreeMap<String, SessionMark>> {
        let mut marks = BTreeMap::new();
        self.marks_of::<MutatingWebhookConfiguration>(&mut marks).await?;
        self.marks_of::<ValidatingWebhookConfiguration>(&mut marks).await?;
        if self.policies {
            self.marks_of::<ValidatingAdmissionPolicy>(&mut marks).await?;
            self.marks_of::<ValidatingAdmissionPolicyBinding>(&mut marks).await?;
        }
        for name in &self.crds {
            let crd = self.crd(name).await?;
            marks.extend(crd.and_then(|crd| Some((conversion(name), SessionMark::of(&crd.metadata)?))));
        }
        Ok(marks)
    }

    async fn marks_of<K: Put>(&self, marks: &mut BTreeMap<String, SessionMark>) -> anyhow::Result<()> {
        let kind = K::kind(&());
        let found = call(&format!("list objects of kind {kind}"), self.api::<K>().list(&self.sessions())).await?;
        marks.extend(
            found
                .iter()
                .filter_map(|object| Some((format!("{kind} {}", object.name_any()), SessionMark::of(object.meta())?))),
        );
        Ok(())
    }

    fn sessions(&self) -> ListParams {
        ListParams::default().labels(&format!("{OF}={}", self.me.of))
    }

    /// Takes out what this session put in.
    pub(super) async fn remove(&self) -> anyhow::Result<Vec<String>> {
        self.take_out(|mark| mark.session == self.me.session).await
    }

    async fn take_out(&self, goes: impl Fn(&SessionMark) -> bool) -> anyhow::Result<Vec<String>> {
        let mut done = Vec::new();
        self.delete::<MutatingWebhookConfiguration>(&goes, &mut done).await?;
        self.delete::<ValidatingWebhookConfiguration>(&goes, &mut done).await?;
        if self.policies {
            self.delete::<ValidatingAdmissionPolicyBinding>(&goes, &mut done).await?;
            self.delete::<ValidatingAdmissionPolicy>(&goes, &mut done).await?;
        }
        for crd in &self.crds {
            self.give_back(crd, &goes, &mut done).await?;
        }
        Ok(done)
    }

    async fn delete<K: Put>(&self, goes: &impl Fn(&SessionMark) -> bool, done: &mut Vec<String>) -> anyhow::Result<()> {
        let (api, kind) = (self.api::<K>(), K::kind(&()));
        for object in call(&format!("list objects of kind {kind}"), api.list(&self.sessions())).await? {
            let Some(mark) = SessionMark::of(object.meta()).filter(|mark| goes(mark)) else { continue };
            let name = object.name_any();
            // Whoever has put another in its place since, put in what is theirs.
            let this = Preconditions { uid: object.uid(), ..Preconditions::default() };
            let what = format!("delete {kind} {name}");
            match call(&what, api.delete(&name, &DeleteParams::default().preconditions(this))).await {
                Ok(_) => done.push(format!("removed {kind} {name} of {}", mark.told())),
                Err(error) if is_code(&error, &[404, 409]) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn give_back(
        &self,
        name: &str,
        goes: &impl Fn(&SessionMark) -> bool,
        done: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let mut tries = 1;
        loop {
            let Some(crd) = self.crd(name).await? else { return Ok(()) };
            let Some(mark) = SessionMark::of(&crd.metadata).filter(|mark| goes(mark)) else { return Ok(()) };
            let (patch, said) = match give_back(&crd) {
                GiveBack::Former(patch) => {
                    (patch, format!("gave the conversion of {name} back, which {} had taken", mark.told()))
                }
                GiveBack::Leave(patch) => {
                    (patch, format!("left the conversion of {name} as it is: somebody has changed it since"))
                }
                GiveBack::Unreadable(patch) => (
                    patch,
                    format!(
                        "left the conversion of {name} as it is: what it was before does not read any more; see 'generate crds'"
                    ),
                ),
            };
            match self.patch_crd(name, patch).await {
                Ok(crd) => {
                    // Only for tidiness: what is left otherwise is an owner of fields that nobody disputes today.
                    if let Some(patch) = managed_without(&crd, &self.manager()) {
                        let _ = self.patch_crd(name, patch).await;
                    }
                    done.push(said);
                    return Ok(());
                }
                Err(error) if is_code(&error, &[409]) && tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Has the objects of this CRD converted at `path` of `target`.
    pub(super) async fn lend(&self, name: &str, path: &str, target: &Target) -> anyhow::Result<()> {
        let mut tries = 1;
        loop {
            let crd = self.crd(name).await?;
            let crd = crd.with_context(|| {
                format!("the cluster has no CustomResourceDefinition {name}; install it: generate crds | kubectl apply --server-side -f -")
            })?;
            if let Some(other) = SessionMark::of(&crd.metadata).filter(|mark| mark.session != self.me.session) {
                bail!(
                    "objects of {name} are converted by the session of {} now, and only one can: wait, or where that \
                     session is dead run: dev --sweep --owner {}",
                    other.told(),
                    other.owner
                );
            }
            match self.patch_crd(name, lend(&crd, path, target, &self.me)?).await {
                Ok(_) => return Ok(()),
                Err(error) if is_code(&error, &[409]) && tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn crd(&self, name: &str) -> anyhow::Result<Option<CustomResourceDefinition>> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        call(&format!("read CustomResourceDefinition {name}"), api.get_opt(name)).await
    }

    async fn patch_crd(&self, name: &str, patch: Value) -> anyhow::Result<CustomResourceDefinition> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let params = PatchParams { field_manager: Some(self.manager()), ..PatchParams::default() };
        call(&format!("change the conversion of {name}"), api.patch(name, &params, &Patch::Merge(patch))).await
    }

    pub(super) async fn put_validating(&self, object: &ValidatingWebhookConfiguration) -> anyhow::Result<()> {
        self.put(object).await
    }

    pub(super) async fn put_mutating(&self, object: &MutatingWebhookConfiguration) -> anyhow::Result<()> {
        self.put(object).await
    }

    /// A policy, and then what puts it into force.
    pub(super) async fn put_policy(
        &self,
        policy: &ValidatingAdmissionPolicy,
        binding: &ValidatingAdmissionPolicyBinding,
    ) -> anyhow::Result<()> {
        self.put(policy).await?;
        self.put(binding).await
    }

    async fn put<K: Put>(&self, object: &K) -> anyhow::Result<()> {
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

/// What people know a CRD's stanza as.
pub(super) fn conversion(crd: &str) -> String {
    format!("the conversion of {crd}")
}

/// Whether the API server answered with one of these codes.
pub(super) fn is_code(error: &anyhow::Error, codes: &[u16]) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if codes.contains(&status.code))
}
