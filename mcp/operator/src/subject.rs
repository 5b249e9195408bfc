//! The trait of every kind of this operator.

use kube::core::object::{HasSpec, HasStatus};
use mcp_plan::{
    problem::Problem,
    reference::{Data, Reference},
    settings::Settings,
};
use portcullis::controller::Kind;
use serde::Serialize;

/// A kind that this operator has a controller and an admission webhook for.
pub trait Subject: Kind + HasSpec<Spec: PartialEq + Serialize> + HasStatus<Status: Serialize + Send + Sync> {
    /// The finalizer that its controller puts on every object. A kind whose objects may go at once has none: what is left
    /// of them is the garbage collector's, and an object is gone also where no operator runs any more.
    const FINALIZER: Option<&'static str>;

    /// The resources of its objects, their status and their finalizers, in rules of roles.
    const RESOURCES: [&'static str; 3];

    /// Everything the object itself refers to.
    fn references(&self) -> Vec<Reference>;

    /// Every rule it breaks that its schema cannot say. With one of them it can never work.
    fn problems(&self) -> Vec<Problem>;

    /// The addresses that proxies may not call under the operator's settings, and the fields that their image does not heed.
    fn settings_problems(&self, settings: &Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Every rule that it breaks under the operator's settings, but for what it may not have of its node and of the operator
    /// ([`refused_pods`](crate::workload::refused_pods), [`refused_secrets`](crate::config::refused_secrets)).
    fn every_problem(&self, settings: &Settings) -> Vec<Problem> {
        self.problems().into_iter().chain(self.settings_problems(settings)).collect()
    }

    /// Every rule that it breaks by a change of the object that was stored as `old`, or by being made. A rule that came after objects which
    /// break it stands here: those keep working, and their other changes pass.
    fn change_problems(&self, old: Option<&Self>) -> Vec<Problem> {
        let _ = old;
        Vec::new()
    }

    /// The faults of the texts that it [refers to](Self::references), as far as `texts` has them: sentences.
    fn text_problems(&self, texts: &Data) -> Vec<String> {
        let _ = texts;
        Vec::new()
    }

    /// Warnings about valid settings that do less than their author may think.
    fn warnings(&self, settings: &Settings) -> Vec<String> {
        let _ = settings;
        Vec::new()
    }
}

/// The index of the objects of a kind: everything that they refer to.
pub fn tokens<K: Subject>(object: &K) -> Vec<String> {
    object.references().iter().map(Reference::token).collect()
}
