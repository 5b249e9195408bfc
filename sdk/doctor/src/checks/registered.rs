//! W13 and W14: what stands in the cluster is what was generated, from the registration and the flags.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, Validation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Said, View, fail, warn};
use crate::configuration::shown;
use crate::subject::Subject;

const DENY: &str = "Deny";

/// W13
pub(super) fn policies(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let fix = || subject.apply("policies");
    let mut notes = Vec::new();
    for (policy, binding) in subject.policies() {
        let name = policy.metadata.name.clone().unwrap_or_default();
        let Some((found, found_binding)) = snapshot.cel_policies.get(&name) else { continue };
        let Some(found) = found.known()? else {
            notes.push(fail(format!("no ValidatingAdmissionPolicy {name}: its CEL rules do not hold"), fix()));
            continue;
        };
        notes.extend(
            changed(found, &policy).map(|what| {
                warn(format!("ValidatingAdmissionPolicy {name}: its {what} is not what is generated"), fix())
            }),
        );
        match found_binding.known()? {
            None => notes.push(fail(
                format!("no ValidatingAdmissionPolicyBinding {name}: the policy's CEL rules do not hold"),
                fix(),
            )),
            Some(found) if !denies(found, &name) => notes.push(fail(
                format!("ValidatingAdmissionPolicyBinding {name} does not refuse what breaks the policy's CEL rules"),
                fix(),
            )),
            Some(found) if scope(found) != scope(&binding) => notes.push(warn(
                format!("ValidatingAdmissionPolicyBinding {name}: selectors are not those that were generated"),
                chosen(subject, "policies"),
            )),
            Some(_) => {}
        }
    }
    Ok(notes)
}

/// The first part of the policy that is another.
fn changed(found: &ValidatingAdmissionPolicy, wanted: &ValidatingAdmissionPolicy) -> Option<&'static str> {
    let (found, wanted) = (found.spec.clone().unwrap_or_default(), wanted.spec.clone().unwrap_or_default());
    let rules = |constraints: &Option<MatchResources>| {
        let constraints = constraints.clone().unwrap_or_default();
        let left_out: Vec<NamedRuleWithOperations> = constraints.exclude_resource_rules.unwrap_or_default();
        let selectors = (constraints.namespace_selector.unwrap_or_default(), constraints.object_selector);
        (constraints.match_policy, constraints.resource_rules, left_out, selectors.0, selectors.1.unwrap_or_default())
    };
    let validations = |all: Option<Vec<Validation>>| all.unwrap_or_default();
    if validations(found.validations) != validations(wanted.validations) {
        return Some("list of validations");
    }
    if rules(&found.match_constraints) != rules(&wanted.match_constraints) {
        return Some("matchConstraints");
    }
    if found.match_conditions.unwrap_or_default() != wanted.match_conditions.unwrap_or_default() {
        return Some("list of matchConditions");
    }
    (found.failure_policy != wanted.failure_policy).then_some("failurePolicy")
}

fn denies(binding: &ValidatingAdmissionPolicyBinding, policy: &str) -> bool {
    let spec = binding.spec.clone().unwrap_or_default();
    spec.policy_name.as_deref() == Some(policy) && spec.validation_actions.iter().flatten().any(|action| action == DENY)
}

/// What the binding selects, in the form in which the API server gives it.
fn scope(binding: &ValidatingAdmissionPolicyBinding) -> (LabelSelector, LabelSelector, usize) {
    let resources = binding.spec.clone().unwrap_or_default().match_resources.unwrap_or_default();
    let rules = resources.resource_rules.iter().chain(&resources.exclude_resource_rules).flatten().count();
    (resources.namespace_selector.unwrap_or_default(), resources.object_selector.unwrap_or_default(), rules)
}

/// W14
pub(super) fn settings(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let generated: BTreeMap<_, _> =
        subject.as_generated().into_iter().map(|webhook| ((webhook.kind, webhook.name.clone()), webhook)).collect();
    let mut notes = Vec::new();
    for ((kind, name), webhook) in &generated {
        let Some(configuration) = snapshot.configuration(subject, *kind) else { continue };
        let Some(entry) = configuration.entries.iter().find(|entry| entry.name == *name) else { continue };
        let label = format!("{}/{name}", configuration.name());
        let same = |one: &Option<LabelSelector>, other: &Option<LabelSelector>| {
            one.clone().unwrap_or_default() == other.clone().unwrap_or_default()
        };
        for (member, found, wanted) in [
            ("namespaceSelector", &entry.namespaces, &webhook.namespace_selector),
            ("objectSelector", &entry.objects, &webhook.object_selector),
        ] {
            if !same(found, wanted) {
                let (found, wanted) = (shown(found.as_ref()), shown(wanted.as_ref()));
                let message = format!("{label}: {member} is {found}; generated: {wanted}");
                notes.push(warn(message, chosen(subject, "webhooks")));
            }
        }
        if entry.timeout_seconds != i32::from(webhook.timeout_seconds) {
            let message =
                format!("{label}: timeoutSeconds is {}; generated: {}", entry.timeout_seconds, webhook.timeout_seconds);
            notes.push(warn(message, chosen(subject, "webhooks")));
        }
    }
    Ok(notes)
}

/// What to do about settings: they may have been chosen where the operator was installed.
fn chosen(subject: &Subject, what: &str) -> String {
    let flags = "--failure-policy, --timeout-seconds, --namespace-selector, --object-selector";
    format!("{}; or, where it was chosen, give it to doctor as well ({flags})", subject.apply(what))
}
