//! The additions of a workload's author to the proxy's objects, checked as the API server does. A label, an annotation
//! or a variable that it does not take keeps the object from being written at all.

use std::collections::BTreeMap;

use mcp_api::v1beta1::ResourceOverrides;
use mcp_runconfig::environment::{
    KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, OTEL_RESOURCE_ATTRIBUTES, is_operators, is_unread_in_pods,
};

use super::names;
use crate::problem::Problem;

/// Longest name in a key, and longest value of a label, in bytes.
const MAX_WORD: usize = 63;
/// Longest domain in front of a key's slash, in bytes.
const MAX_DOMAIN: usize = 253;

type Entries = Option<BTreeMap<String, String>>;

/// The problems of `spec.resourceOverrides`.
pub fn problems(overrides: &ResourceOverrides) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, var) in overrides.proxy_deployment.iter().flat_map(|it| it.env.iter().flatten()).enumerate() {
        let message = if is_variable(&var.name) { reserved(&var.name) } else { Some(variable_message(&var.name)) };
        let field = || format!("spec.resourceOverrides.proxyDeployment.env[{at}].name");
        problems.extend(message.map(|message| Problem::new(field(), message)));
    }
    let mut check = |path: &str, labels: &Entries, annotations: &Entries| {
        let path = format!("spec.resourceOverrides.{path}");
        for (key, value) in labels.iter().flatten() {
            key_problem(key, &format!("{path}.labels"), &mut problems);
            if !value.is_empty() && !is_word(value) {
                let message = format!(
                    "{value:?} cannot be the value of the label {key}; use at most {MAX_WORD} letters, digits, -, _ and ."
                );
                problems.push(Problem::new(format!("{path}.labels"), message));
            }
        }
        for key in annotations.iter().flatten().map(|(key, _)| key) {
            // The API server lowers the case of these before it looks.
            key_problem(&key.to_ascii_lowercase(), &format!("{path}.annotations"), &mut problems);
        }
    };
    if let Some(proxy) = &overrides.proxy_deployment {
        check("proxyDeployment", &proxy.labels, &proxy.annotations);
        if let Some(pods) = &proxy.pod_template_metadata_overrides {
            check("proxyDeployment.podTemplateMetadataOverrides", &pods.labels, &pods.annotations);
        }
    }
    if let Some(service) = &overrides.proxy_service {
        check("proxyService", &service.labels, &service.annotations);
    }
    problems
}

/// A sentence for each part of `spec.resourceOverrides` that has no effect.
pub fn warnings(overrides: &ResourceOverrides) -> Vec<String> {
    let pods = overrides.proxy_deployment.as_ref().and_then(|it| it.pod_template_metadata_overrides.as_ref());
    let field = "spec.resourceOverrides.proxyDeployment.podTemplateMetadataOverrides.labels";
    let mut warnings = names::selector_label_notes(field, pods.and_then(|pods| pods.labels.as_ref()));
    let variables = overrides.proxy_deployment.iter().flat_map(|it| it.env.iter().flatten());
    let field = "spec.resourceOverrides.proxyDeployment.env";
    warnings.extend(variables.filter_map(|var| variable_note(field, &var.name)));
    warnings
}

/// A sentence about the attributes in a variable that the operator sets for what `field` names, where they are there.
pub fn attributes_note(overrides: &ResourceOverrides, field: &str) -> Option<String> {
    let mut variables = overrides.proxy_deployment.as_ref()?.env.iter().flatten();
    variables.find(|variable| variable.name == OTEL_RESOURCE_ATTRIBUTES)?;
    Some(format!(
        "spec.resourceOverrides.proxyDeployment.env[{OTEL_RESOURCE_ATTRIBUTES}] has no effect: the operator sets this variable; write \
         spec.openTelemetry.resourceAttributes of the configuration that {field} names"
    ))
}

/// A sentence about a variable of a proxy that has no effect, if it has none. `field` holds the variables.
pub(super) fn variable_note(field: &str, name: &str) -> Option<String> {
    let why = match name {
        _ if is_operators(name) => "the operator sets this variable",
        "SSL_CERT_FILE" | "SSL_CERT_DIR" => {
            "in a pod, the proxy trusts the roots of its image, or of the operator's --proxy-ca-bundle"
        }
        _ if is_unread_in_pods(name) => "a proxy in a pod does not read this variable",
        _ => return None,
    };
    Some(format!("{field}[{name}] has no effect: {why}"))
}

/// Whether Kubernetes takes this name of a variable: printable ASCII without `=`.
pub fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

/// The problem of such a name.
pub fn variable_message(name: &str) -> String {
    format!("{name:?} cannot name an environment variable; use letters, digits and _")
}

/// Why nobody may set this variable of a proxy, where nobody may.
pub(super) fn reserved(name: &str) -> Option<String> {
    let is_reserved = [KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT].contains(&name);
    is_reserved.then(|| {
        format!(
            "{name:?} tells the proxy where the Kubernetes API is, which it keeps callers from; remove this variable"
        )
    })
}

/// Lower-case letters, digits and dashes inside.
pub fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn key_problem(key: &str, field: &str, problems: &mut Vec<Problem>) {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let domain_fits = domain.is_none_or(|domain| domain.len() <= MAX_DOMAIN && domain.split('.').all(is_dns_label));
    if !domain_fits || !is_word(name) {
        let message = format!(
            "{key:?} cannot be a key; use at most {MAX_WORD} letters, digits, -, _ and ., after a domain and a slash if need be"
        );
        problems.push(Problem::new(field, message));
    }
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= MAX_WORD
        && text.bytes().all(inner)
        && ends.into_iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}
