//! The checks of an MCPRemoteProxy before anything is rendered, for its conditions.

use mcp_api::{
    names::{condition, reason},
    v1beta1::{MCPRemoteProxy, MCPRemoteProxySpec},
};
use mcp_plan::{
    problem::{Problem, sentences},
    reference::{Content, Data},
    workload::{
        pod_template::{self, Template},
        proxy_template::{self, CONTAINER},
    },
};
use portcullis::controller::ConditionStatus;

use super::{headers, rules};
use crate::workload::{Block, Findings, GUARD_NOT_BUILT, Workload as _, checks};

pub(super) fn check(proxy: &MCPRemoteProxy, data: &Data, findings: &mut Findings<'_>) {
    let spec = &proxy.spec;
    check_configuration(proxy, data, findings);
    checks::pod_template(pod_template(spec), &template_notes(spec), findings);
    checks::ignored_provider(spec.authz_config.as_ref(), findings);
    checks::unsupported(proxy, &unsupported(spec), findings);
}

/// The status message when the proxy is not created, with ToolHive's text (toolhive-0.63 §2.3).
pub(super) fn refusal(Block { config, condition, message, .. }: &Block) -> String {
    match config {
        Some(kind) => format!("Failed to handle {kind}: {message}"),
        None if [condition::CONFIGURATION_VALID, condition::AUTHZ_CONFIG_VALIDATED].contains(condition) => {
            format!("Validation failed: {message}")
        }
        None => message.clone(),
    }
}

/// The fields that are set and change nothing in this version. None of them guards anything.
pub(super) fn unsupported(spec: &MCPRemoteProxySpec) -> Vec<&'static str> {
    spec.group_ref.iter().map(|_| "spec.groupRef").collect()
}

/// The user's template for the proxy's pods, read; none where there is none.
pub(super) fn pod_template(spec: &MCPRemoteProxySpec) -> Option<Result<Template, Problem>> {
    spec.pod_template_spec.as_ref().map(|template| pod_template::decode(template, CONTAINER))
}

/// Warnings for the author of a template.
pub(super) fn template_notes(spec: &MCPRemoteProxySpec) -> Vec<String> {
    let Some(Ok(template)) = pod_template(spec) else { return Vec::new() };
    let kept = proxy_template::kept(&template.known);
    let kept = kept.into_iter().map(|field| format!("{field} has no effect: the operator decides it"));
    let variables = proxy_template::variable_notes(&template.known);
    template.notes().into_iter().chain(kept).chain(variables).collect()
}

fn check_configuration(proxy: &MCPRemoteProxy, data: &Data, findings: &mut Findings<'_>) {
    let [missing, broken] = data.faults(headers::references(&proxy.spec).filter_map(|it| it.value(Content::Header)));
    let problems = rules::problems(proxy);
    let unbuilt = proxy.uses().unbuilt(findings.settings);
    let forbidden = rules::remote_url_problem(proxy, findings.settings);
    let policies = findings.blocked_by(condition::AUTHZ_CONFIG_VALIDATED).cloned();
    if let Some(problem) = forbidden {
        block(findings, reason::REMOTE_URL_INVALID, problem.to_string());
    } else if !problems.is_empty() {
        block(findings, "InvalidSpec", sentences(&problems));
    } else if let Some(Block { reason, message, .. }) = policies {
        refuse(findings, reason, message);
    } else if !missing.is_empty() {
        block(findings, reason::HEADER_SECRET_NOT_FOUND, sentences(&missing));
    } else if !broken.is_empty() {
        block(findings, "HeaderSecretNotUsable", sentences(&broken));
    } else if !unbuilt.is_empty() {
        let message = format!("{} cannot be enforced by this version", unbuilt.join(", "));
        refuse(findings, GUARD_NOT_BUILT, message);
    } else {
        findings.conditions.set(
            condition::CONFIGURATION_VALID,
            ConditionStatus::True,
            reason::CONFIGURATION_VALID,
            "All configuration validations passed",
        );
    }
}

fn block(findings: &mut Findings<'_>, reason: &'static str, message: String) {
    findings.block(condition::CONFIGURATION_VALID, reason, message.clone());
    refuse(findings, reason, message);
}

/// Says why it is refused. ToolHive says it of authentication, too, whatever it validates before it looks at configurations.
fn refuse(findings: &mut Findings<'_>, reason: &'static str, message: String) {
    let conditions = &mut findings.conditions;
    conditions.set(condition::CONFIGURATION_VALID, ConditionStatus::False, reason, message.clone());
    conditions.set(condition::AUTH_CONFIGURED, ConditionStatus::False, reason::AUTH_INVALID, message);
}
