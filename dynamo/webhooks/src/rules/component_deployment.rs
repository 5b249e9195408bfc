//! DynamoComponentDeployment.

use super::{Findings, RuleContext, Rules, component, framework_change};
use crate::kinds::DynamoComponentDeployment;

/// The kind of the graph that a component may belong to.
const GRAPH: &str = "DynamoGraphDeployment";

impl Rules for DynamoComponentDeployment {
    fn check(&self, _: &RuleContext) -> Findings {
        let mut owners = self.metadata.owner_references.iter().flatten();
        let graph = owners.find(|owner| owner.kind == GRAPH).map(|owner| &owner.name).or(self.metadata.name.as_ref());
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let graph = graph.map(String::as_str).unwrap_or_default();
        match component::check(&self.spec.component, "spec", namespace, graph) {
            Ok(warnings) => Findings { error: None, warnings },
            Err(error) => Findings::refused(error),
        }
    }

    fn check_change(&self, old: &Self, _: &str, _: &RuleContext) -> Findings {
        let (before, after) = (old.spec.backend_framework.as_ref(), self.spec.backend_framework.as_ref());
        match framework_change(before, after) {
            Some((error, warning)) => Findings { error: Some(error), warnings: vec![warning] },
            None => Findings::default(),
        }
    }
}
