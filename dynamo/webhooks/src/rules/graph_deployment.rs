//! DynamoGraphDeployment.

use super::scaling::may_scale;
use super::{Findings, RuleContext, Rules, component, framework_change};
use crate::kinds::{Component, DynamoGraphDeployment, Pvc, Quantity};

impl Rules for DynamoGraphDeployment {
    fn check(&self, _: &RuleContext) -> Findings {
        let Some(services) = self.spec.services.as_ref().filter(|services| !services.is_empty()) else {
            return Findings::refused("spec.services must have at least one service");
        };
        let mut claims = self.spec.pvcs.iter().flatten().enumerate().map(|(index, claim)| of_claim(index, claim));
        if let Some(errors) = claims.find(|errors| !errors.is_empty()) {
            return Findings::of(&errors, Vec::new());
        }
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let mut warnings = Vec::new();
        for (service, component) in services {
            match component::check(component, &path(service), namespace, name) {
                Ok(more) => warnings.extend(more),
                Err(error) => return Findings::refused(error),
            }
        }
        Findings { error: None, warnings }
    }

    fn check_change(&self, old: &Self, user: &str, context: &RuleContext) -> Findings {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let (before, after) = (old.spec.backend_framework.as_ref(), self.spec.backend_framework.as_ref());
        if let Some((error, warning)) = framework_change(before, after) {
            errors.push(error);
            warnings.push(warning);
        }
        let in_both = || {
            let old = old.spec.services.as_ref();
            let new = self.spec.services.iter().flatten();
            new.filter_map(move |(service, new)| Some((service, old?.get(service)?, new)))
        };
        for (service, _, _) in in_both().filter(|(_, old, new)| old.is_multinode() != new.is_multinode()) {
            let path = path(service);
            errors.push(format!(
                "{path} cannot change node topology (between single-node and multi-node) after creation"
            ));
        }
        // Dynamo looks at the replicas only where nothing immutable changed.
        if errors.is_empty() && !may_scale(user, context) {
            let scaled = in_both().filter(|(_, old, new)| is_scaled(new) && replicas(old) != replicas(new));
            errors.extend(scaled.map(|(service, _, _)| {
                format!(
                    "{}.replicas cannot be modified directly when scaling adapter is enabled; scale or update the related \
                     DynamoGraphDeploymentScalingAdapter instead",
                    path(service)
                )
            }));
        }
        Findings::of(&errors, warnings)
    }
}

fn path(service: &str) -> String {
    format!("spec.services[{service}]")
}

/// The problems of a claim.
fn of_claim(index: usize, claim: &Pvc) -> Vec<String> {
    let create = claim.create == Some(true);
    let empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    let required = [
        ("name is required", empty(&claim.name)),
        ("storageClass is required when create is true", create && empty(&claim.storage_class)),
        ("size is required when create is true", create && claim.size.as_ref().is_none_or(Quantity::is_zero)),
        ("volumeAccessMode is required when create is true", create && empty(&claim.volume_access_mode)),
    ];
    required.into_iter().filter(|(_, missing)| *missing).map(|(what, _)| format!("spec.pvcs[{index}].{what}")).collect()
}

/// At first Dynamo took every service for one that an adapter scales, unless `scalingAdapter.disable` was set. 0.8 asks for
/// `enabled`.
fn is_scaled(component: &Component) -> bool {
    component.scaling_adapter.as_ref().is_some_and(|adapter| adapter.enabled == Some(true))
}

fn replicas(component: &Component) -> i32 {
    component.replicas.unwrap_or(1)
}
