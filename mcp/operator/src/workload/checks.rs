//! The checks of every kind of workload before anything is rendered, for conditions and for warnings at `kubectl
//! apply`.

use std::borrow::Cow;

use mcp_api::{
    names::{annotation::FAIL_CLOSED, condition, reason},
    v1beta1::AuthzConfig,
};
use mcp_plan::{
    authorization, config::Configs, problem::Problem, session_storage, settings::Settings,
    workload::pod_template::Template,
};
use mcp_runconfig::{RATE_LIMIT, RunConfig};
use portcullis::controller::ConditionStatus;

use super::{Findings, Workload, target};

/// Condition: fields without effect are set (`True` is the warning). Present only while they are.
pub const UNSUPPORTED_FIELDS: &str = "UnsupportedFields";
/// Condition: policies ask for claims that no caller has (`True` is the warning). Present only while they do.
pub const CLAIMS_MISSING: &str = "AuthzClaimsMissing";
/// The reason why a setting has no effect: the end of a sentence.
const OF_IMAGE: &str = "with the image of the proxy, which does not have it";

/// `spec.podTemplateSpec` as it was read, and what its author has to know of it.
pub fn pod_template(template: Option<Result<Template, Problem>>, notes: &[String], findings: &mut Findings<'_>) {
    match template {
        None => {}
        Some(Ok(_)) => {
            let message = if notes.is_empty() {
                "PodTemplateSpec is valid".to_owned()
            } else {
                format!("PodTemplateSpec is valid; {}", notes.join("; "))
            };
            findings.conditions.set(
                condition::POD_TEMPLATE_VALID,
                ConditionStatus::True,
                reason::POD_TEMPLATE_VALID,
                message,
            );
        }
        // Condition and status have ToolHive's words.
        Some(Err(problem)) => {
            let (type_, reason) = (condition::POD_TEMPLATE_VALID, reason::POD_TEMPLATE_INVALID);
            findings.block(type_, reason, format!("Invalid PodTemplateSpec: {problem}"));
            let message = format!("Failed to parse PodTemplateSpec: {problem}. Deployment blocked until fixed.");
            findings.conditions.set(type_, ConditionStatus::False, reason, message);
        }
    }
}

/// Sessions of several proxies, which one of them alone knows. An autoscaler sets a number of them where the spec does not.
pub fn sessions<W: Workload>(workload: &W, replicas: Option<i32>, findings: &mut Findings<'_>) {
    let whose = match workload.replicas() {
        Some(_) => "spec.replicas is",
        None => "the Deployment's number of replicas, which spec.replicas leaves to others, is",
    };
    if replicas > Some(1) && !session_storage::is_shared(&workload.uses(), findings.settings) {
        let message = format!("{whose} more than 1 and sessions are not shared across replicas");
        let (type_, reason) = (condition::SESSION_STORAGE_WARNING, reason::SESSION_STORAGE_MISSING);
        findings.conditions.set(type_, ConditionStatus::True, reason, message);
    }
}

/// A provider that policies in the spec name, and that no proxy asks.
pub fn ignored_provider(policies: Option<&AuthzConfig>, findings: &mut Findings<'_>) {
    if let Some(message) = authorization::ignored_provider(policies) {
        let (type_, reason) = (condition::AUTHZ_PROVIDER_IGNORED, "PrimaryUpstreamProviderIgnored");
        findings.conditions.set(type_, ConditionStatus::True, reason, message);
    }
}

/// The claims that policies in the document ask for and that no caller has.
pub fn claims(document: &RunConfig, findings: &mut Findings<'_>) {
    if let Some((reason, message)) = authorization::missing_claims(document) {
        findings.conditions.set(CLAIMS_MISSING, ConditionStatus::True, reason, message);
    }
}

/// The fields that are set and change nothing: those of `fields`, and the settings that the proxy's image does not have.
pub fn unsupported<W: Workload>(workload: &W, fields: &[&'static str], findings: &mut Findings<'_>) {
    let settings = workload.uses().without_effect(findings.settings);
    let lists = [(fields, "in this version"), (&settings, OF_IMAGE)].into_iter().filter(|(list, _)| !list.is_empty());
    let said: Vec<_> = lists.map(|(list, why)| format!("{} has no effect {why}", list.join(", "))).collect();
    if !said.is_empty() {
        findings.conditions.set(UNSUPPORTED_FIELDS, ConditionStatus::True, "FieldsHaveNoEffect", said.join("; "));
    }
}

/// The same as warnings at `kubectl apply`, and the guards that this version cannot enforce.
pub fn warnings<W: Workload>(workload: &W, unsupported: &[&'static str], settings: &Settings) -> Vec<String> {
    let uses = workload.uses();
    let unbuilt = uses.unbuilt(settings).into_iter();
    let unbuilt = unbuilt.map(|field| format!("{field} cannot be enforced by this version: the server gets no proxy"));
    let idle = uses.additions.path_keys().filter(|_| !uses.judge_messages()).map(|key| {
        format!("metadata.annotations[{key}] has no effect: no webhook, tool filter, policy or rate limit judges messages, so every path is open")
    });
    let unsupported = unsupported.iter().map(|field| format!("{field} has no effect in this version"));
    let settings = uses.without_effect(settings).into_iter().map(|field| format!("{field} has no effect {OF_IMAGE}"));
    let closed = (uses.additions.members.rate_limits_fail_closed && !uses.has(RATE_LIMIT))
        .then(|| format!("metadata.annotations[{FAIL_CLOSED}] has no effect: there is no rate limit"));
    unbuilt.chain(idle).chain(closed).chain(unsupported).chain(settings).collect()
}

/// The warnings at `kubectl apply` that the configurations of a workload have for it, as far as they exist.
pub fn advice<W: Workload>(workload: &W, configs: &Configs) -> Vec<String> {
    let requested = workload.uses();
    let target = target(workload, &requested);
    let each = requested.uses.iter().flat_map(|asked| {
        let part = asked.found(configs).map(|config| config.part(asked, &target));
        let said = part.map(|part| match part.misfit {
            Some(misfit) => vec![misfit.problem],
            None => part.warnings.into_iter().map(Cow::Borrowed).collect(),
        });
        said.unwrap_or_default().into_iter().map(|said| format!("{}: {} {said}", asked.field, asked.title()))
    });
    each.collect()
}
