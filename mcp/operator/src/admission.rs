//! The checks at `kubectl apply`: the rules of each kind that its schema cannot express, and references.
//!
//! What can never work is refused with the field, or only warned of where the operator runs with `--admission=warn`.
//! A reference to something that does not exist yet is never more than a warning: manifests are applied in any order.

use std::{collections::BTreeMap, sync::Arc};

use clap::ValueEnum;
use futures::future::{BoxFuture, join_all};
use kube::ResourceExt as _;
use mcp_plan::{
    additions::Additions,
    config::Configs,
    problem::Problem,
    reference::{Data, Reference, Referrer, missing},
    settings::Settings,
    workload::ChildRef,
};
use portcullis::webhooks::{BoxError, Context, Field, OldObject, Operation, Validate, Validator, Verdict};

use crate::subject::Subject;

/// Objects that the API server is asked for at most in one review: the answer has to come in time.
const MOST_ASKED: usize = 16;

/// The handling of an object that can never work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Admission {
    /// It is refused.
    #[default]
    Deny,
    /// It is admitted with warnings; its status says what is wrong.
    Warn,
}

/// The stores of the cluster's objects.
pub trait Known: Send + Sync + 'static {
    /// Whether there is an object of this kind and name; `None` where that is not known, as before the cluster has been seen.
    fn exists(&self, namespace: &str, kind: &str, name: &str) -> Option<bool>;
    /// Whether the API server itself says that it has no such object.
    fn is_missing<'a>(&'a self, namespace: &'a str, reference: &'a Reference) -> BoxFuture<'a, bool>;
    /// The ConfigMaps among `references` whose texts are read, as the API server has them: those that it shows in time.
    fn texts<'a>(&'a self, namespace: &'a str, references: &'a [Reference]) -> BoxFuture<'a, Data>;
    /// The configurations among `references` that exist, as far as the cluster has been seen.
    fn configs(&self, namespace: &str, references: &[Reference]) -> Configs;
    /// The workloads of a namespace that this child may be made for; none while the cluster has not been seen.
    fn makers(&self, namespace: &str, child: &ChildRef) -> Vec<Referrer>;
}

/// The context of the checks, beside the object.
#[derive(Clone)]
pub struct Judging {
    /// The handling of an object that can never work.
    pub admission: Admission,
    /// The stores of the cluster's objects.
    pub known: Arc<dyn Known>,
    /// The operator's settings.
    pub settings: Settings,
}

/// The rules of a kind as an admission webhook.
struct Rules<K> {
    judging: Judging,
    /// Everything that may be made for an object.
    children: fn(&K) -> Vec<ChildRef>,
    /// The parts of its node and of the operator that an object may not have.
    refused: fn(&K, &Settings) -> Vec<Problem>,
    /// The warnings that the configurations which an object refers to have for it.
    advice: fn(&K, &Configs) -> Vec<String>,
}

/// The validating webhook of a kind, named after it. `children` are all that may be made for an object, and `refused` says what it may
/// not have of its node and of the operator; `advice` are the warnings that the configurations to which it refers have for it.
pub fn webhook<K: Subject>(
    judging: &Judging,
    children: fn(&K) -> Vec<ChildRef>,
    refused: fn(&K, &Settings) -> Vec<Problem>,
    advice: fn(&K, &Configs) -> Vec<String>,
) -> Validate<K> {
    let rules = Rules { judging: judging.clone(), children, refused, advice };
    Validate::new(K::kind(&()).to_lowercase()).validator(Arc::new(rules))
}

impl<K: Subject> Rules<K> {
    async fn judge(&self, old: Option<&K>, new: &K, context: &Context) -> Verdict {
        let Judging { admission, known, settings } = &self.judging;
        let problems = new.every_problem(settings).into_iter().chain(new.change_problems(old));
        let verdict = admission.judge(problems.chain((self.refused)(new, settings)));
        if !verdict.is_allowed() {
            return verdict;
        }
        let namespace = context.namespace.as_deref().unwrap_or_default();
        let references = new.references();
        // The stores lag behind: an object that the same apply made a moment ago may not be in them yet.
        let absent = missing(&references, |kind, name| known.exists(namespace, kind, name));
        let asked = absent
            .into_iter()
            .take(MOST_ASKED)
            .map(|reference| async move { known.is_missing(namespace, reference).await.then(|| reference.warning()) });
        let missing: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        let texts = new.text_problems(&known.texts(namespace, &references).await);
        let shared = shared_children(new, &(self.children)(new), |child| known.makers(namespace, child));
        let unknown = Additions::unknown_keys(new.meta().annotations.as_ref()).map(|key| {
            format!(
                "metadata.annotations[{key}]: is not known, and has no effect; see docs/src/explanation/requests.md"
            )
        });
        new.warnings(settings)
            .into_iter()
            .chain(unknown)
            .chain((self.advice)(new, &known.configs(namespace, &references)))
            .chain(missing)
            .chain(texts)
            .chain(shared)
            .fold(verdict, Verdict::warn)
    }
}

impl<K: Subject> Validator<K> for Rules<K> {
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    async fn create(&self, new: Arc<K>, context: Context) -> Result<Verdict, BoxError> {
        Ok(self.judge(None, &new, &context).await)
    }

    /// An update that touches neither the spec nor an annotation of ours is not judged: labels, finalizers and restarts go through whatever
    /// is stored.
    async fn update(&self, old: OldObject<'_, K>, new: Arc<K>, context: Context) -> Result<Verdict, BoxError> {
        let old = old.decode()?;
        let same = {
            let [old, new] = [&old, &new].map(|object| object.meta().annotations.as_ref());
            Additions::of(old) == Additions::of(new) && Additions::unknown_keys(old).eq(Additions::unknown_keys(new))
        };
        if same && old.spec() == new.spec() {
            return Ok(Verdict::allow());
        }
        Ok(self.judge(Some(&old), &new, &context).await)
    }
}

/// A warning for each other workload that may have a child of the name of one of these: of two, one waits.
fn shared_children<K: Subject>(
    new: &K,
    children: &[ChildRef],
    makers: impl Fn(&ChildRef) -> Vec<Referrer>,
) -> Vec<String> {
    let own = Referrer { kind: K::kind(&()).into_owned(), name: new.name_any() };
    let mut shared: BTreeMap<Referrer, Vec<String>> = BTreeMap::new();
    for child in children {
        for other in makers(child).into_iter().filter(|other| *other != own) {
            shared.entry(other).or_default().push(format!("{} {}", child.kind.as_str(), child.name));
        }
    }
    let warning = |(Referrer { kind, name }, children): (Referrer, Vec<String>)| {
        let children = children.join(", ");
        format!(
            "metadata.name: {kind} {name:?} may have {children} as well, and only one of the two gets it; choose another name"
        )
    };
    shared.into_iter().map(warning).collect()
}

// === impl Admission ===

impl Admission {
    /// The verdict on an object that breaks these rules.
    fn judge(self, problems: impl Iterator<Item = Problem>) -> Verdict {
        match self {
            Self::Deny => {
                Verdict::from_causes(problems.map(|problem| Field::new(problem.field).invalid(problem.message)))
            }
            Self::Warn => problems.fold(Verdict::allow(), |verdict, problem| verdict.warn(problem.to_string())),
        }
    }
}

impl std::fmt::Debug for Judging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judging").field("admission", &self.admission).finish_non_exhaustive()
    }
}
