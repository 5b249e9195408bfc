//! Rules of Dynamo's validators: pure functions, with Dynamo's order and messages.
//!
//! They are those of the guide's time (Dynamo 0.7 and 0.8). Later rules are another profile: the length of names under
//! Grove, restarts, the topology of a graph that cannot change, annotations. Dynamo walks a Go map, and so reports one
//! of several problems at random; these rules walk by name.

mod component;
mod component_deployment;
mod graph_deployment;
mod graph_deployment_request;
mod model;
mod scaling;

pub use graph_deployment_request::check_text;
pub use scaling::may_scale;

/// The verdict on an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why it is refused; several reasons are lines.
    pub error: Option<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl Findings {
    /// Refused for this one reason.
    fn refused(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), warnings: Vec::new() }
    }

    /// Refused for these reasons, if there are any.
    fn of(errors: &[String], warnings: Vec<String>) -> Self {
        Self { error: (!errors.is_empty()).then(|| errors.join("\n")), warnings }
    }
}

/// The context of rules beside the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleContext {
    /// The one namespace that the operator serves; all when `None`.
    pub restricted_to: Option<String>,
    /// The user name of the Dynamo operator's own requests, where it is known.
    pub principal: Option<String>,
}

/// The rules of a kind.
pub trait Rules: Sized {
    /// Validates an object by itself.
    fn check(&self, context: &RuleContext) -> Findings;

    /// Validates what `user` changed.
    fn check_change(&self, old: &Self, user: &str, context: &RuleContext) -> Findings;

    /// Validates an update. The order is Dynamo's: of an object that is refused by itself nothing else is said, and
    /// where the change is refused, only what was found of the change.
    fn check_update(&self, old: &Self, user: &str, context: &RuleContext) -> Findings {
        let mut findings = self.check(context);
        if findings.error.is_some() {
            return findings;
        }
        let change = self.check_change(old, user, context);
        if change.error.is_some() {
            return change;
        }
        findings.warnings.extend(change.warnings);
        findings
    }
}

/// The change of a framework, which gives the same message for components and graphs.
fn framework_change(old: Option<&String>, new: Option<&String>) -> Option<(String, String)> {
    let changed = old.map(String::as_str).unwrap_or_default() != new.map(String::as_str).unwrap_or_default();
    changed.then(|| (crate::kinds::is_immutable("backendFramework"), may_surprise("backendFramework")))
}

fn may_surprise(field: &str) -> String {
    format!("Changing spec.{field} may cause unexpected behavior")
}
