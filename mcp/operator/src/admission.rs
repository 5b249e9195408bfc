//! What is said at `kubectl apply`: the rules of each kind, which its schema cannot say, and references.
//!
//! What can never work is refused with the field, or only warned of where the operator runs with `--admission=warn`.
//! A reference to something that does not exist yet is never more than a warning: manifests are applied in any order.

use std::sync::Arc;

use clap::ValueEnum;
use portcullis::webhooks::{Cause, Context, Validate, Validator, Verdict};

use crate::{
    problem::Problem,
    reference::{self, Exists},
    settings::Settings,
    subject::Subject,
};

/// What becomes of an object that can never work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Admission {
    /// It is refused.
    #[default]
    Deny,
    /// It is admitted with warnings; its status says what is wrong.
    Warn,
}

/// What is known of the cluster.
pub trait Known: Send + Sync + 'static {
    /// What is known of a namespace; nothing while the cluster has not been seen.
    fn in_namespace<'a>(&'a self, namespace: &'a str) -> Option<Box<dyn Exists + 'a>>;
}

/// What objects are judged by, beside themselves.
#[derive(Clone)]
pub struct Judging {
    /// What becomes of an object that can never work.
    pub admission: Admission,
    /// What is known of the cluster.
    pub known: Arc<dyn Known>,
    /// What the operator was started with.
    pub settings: Settings,
}

/// The rules of a kind as an admission webhook.
struct Rules(Judging);

/// The validating webhook of a kind, named after it.
pub fn webhook<K: Subject>(judging: &Judging) -> Validate<K> {
    Validate::named(K::kind(&()).to_lowercase()).validator(Arc::new(Rules(judging.clone())))
}

impl<K: Subject> Validator<K> for Rules {
    async fn create(&self, new: Arc<K>, context: Context) -> Verdict {
        let Judging { admission, known, settings } = &self.0;
        let verdict = admission.judge(new.every_problem(settings).into_iter());
        if !verdict.is_allowed() {
            return verdict;
        }
        let known = known.in_namespace(context.namespace.as_deref().unwrap_or_default());
        let missing = known.map(|known| reference::warnings(&new.references(), &*known)).unwrap_or_default();
        new.warnings(settings).into_iter().chain(missing).fold(verdict, Verdict::warn)
    }

    /// What does not touch the spec is not judged: labels, finalizers and restarts go through whatever is stored.
    async fn update(&self, old: Arc<K>, new: Arc<K>, context: Context) -> Verdict {
        if old.spec() == new.spec() { Verdict::allow() } else { self.create(new, context).await }
    }
}

// === impl Admission ===

impl Admission {
    /// The verdict on an object that breaks these rules.
    fn judge(self, problems: impl Iterator<Item = Problem>) -> Verdict {
        match self {
            Self::Deny => Verdict::of(problems.map(|problem| Cause::new(problem.field, problem.message))),
            Self::Warn => problems.fold(Verdict::allow(), |verdict, problem| verdict.warn(problem.to_string())),
        }
    }
}

impl std::fmt::Debug for Judging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judging").field("admission", &self.admission).finish_non_exhaustive()
    }
}
