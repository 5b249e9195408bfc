//! Admission policies with the CEL rules of webhooks, which the API server evaluates itself (KEP-3488).

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
};
use portcullis_review::Operation;

use crate::configuration::{match_conditions, metadata};
use crate::{Rule, Webhook};

/// Whether CEL rules of the webhook would be evaluated for a request: one that brings an object.
fn brings_object(operation: Operation) -> bool {
    matches!(operation, Operation::Create | Operation::Update)
}

impl Webhook {
    /// Whether its rules match requests that CEL rules are evaluated for: creations and updates of objects.
    pub fn has_use_for_cel_rules(&self) -> bool {
        self.rules.iter().flat_map(|rule| &rule.operations).any(|operation| brings_object(*operation))
    }
}

/// Name of the policy with the CEL rules of a webhook, and of its binding: the configuration's, which has no dot, then
/// the webhook's. No two webhooks of any installations have the same.
fn policy_name(configuration: &str, webhook: &Webhook) -> String {
    format!("{configuration}.{}", webhook.name)
}

/// A policy and its binding for each webhook that has CEL rules.
///
/// The policy matches the creations and updates that the webhook is called for, with
/// [all of its match conditions](Webhook::all_match_conditions). The binding has the webhook's selectors. A request
/// that breaks a rule is denied as invalid (422), whatever the failure policy of the webhook: the operator need not run.
pub fn admission_policies(
    configuration: &str,
    webhooks: &[Webhook],
) -> Vec<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)> {
    let with_rules = webhooks.iter().filter(|webhook| !webhook.cel_rules.is_empty());
    with_rules
        .map(|webhook| {
            let name = policy_name(configuration, webhook);
            (policy(&name, webhook), binding(&name, webhook))
        })
        .collect()
}

fn policy(name: &str, webhook: &Webhook) -> ValidatingAdmissionPolicy {
    let validations = webhook.cel_rules.iter().map(|rule| Validation {
        expression: rule.expression.clone(),
        message: Some(rule.message.clone()),
        reason: Some("Invalid".to_owned()),
        ..Validation::default()
    });
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_conditions: match_conditions(webhook),
        match_constraints: Some(MatchResources {
            match_policy: Some(webhook.match_policy.to_string()),
            resource_rules: Some(webhook.rules.iter().filter_map(resource_rule).collect()),
            ..MatchResources::default()
        }),
        validations: Some(validations.collect()),
        ..ValidatingAdmissionPolicySpec::default()
    };
    ValidatingAdmissionPolicy { metadata: metadata(name), spec: Some(spec), ..ValidatingAdmissionPolicy::default() }
}

fn binding(name: &str, webhook: &Webhook) -> ValidatingAdmissionPolicyBinding {
    let spec = ValidatingAdmissionPolicyBindingSpec {
        policy_name: Some(name.to_owned()),
        match_resources: Some(MatchResources {
            match_policy: Some(webhook.match_policy.to_string()),
            namespace_selector: webhook.namespace_selector.clone(),
            object_selector: webhook.object_selector.clone(),
            ..MatchResources::default()
        }),
        validation_actions: Some(vec!["Deny".to_owned()]),
        ..ValidatingAdmissionPolicyBindingSpec::default()
    };
    ValidatingAdmissionPolicyBinding { metadata: metadata(name), spec: Some(spec) }
}

/// The rule, without operations that have no object.
fn resource_rule(rule: &Rule) -> Option<NamedRuleWithOperations> {
    let operations = rule.operations.iter().filter(|operation| brings_object(**operation));
    let operations: Vec<String> = operations.map(ToString::to_string).collect();
    (!operations.is_empty()).then(|| NamedRuleWithOperations {
        api_groups: Some(rule.groups.clone()),
        api_versions: Some(rule.versions.clone()),
        operations: Some(operations),
        resource_names: None,
        resources: Some(rule.resources.clone()),
        scope: Some(rule.scope.to_string()),
    })
}
