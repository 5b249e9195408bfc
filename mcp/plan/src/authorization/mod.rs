//! Authorization: who may call what, as a configuration of its own, a workload's spec or a ConfigMap says it.

mod check;
mod config_map;
mod inline;

use std::sync::Arc;

use crate::{
    config::{Config, ConfigUse, Role, Words},
    problem::Problem,
    reference::Data,
};
use mcp_api::{
    names::{condition, reason},
    v1beta1::AuthzConfig,
};
use mcp_runconfig::AUTHORIZATION;

pub use check::{endpoint_problem, missing_claims, problem, read};

use config_map::InConfigMap;
use inline::Inline;

/// The most bytes that a policy in the spec of a remote proxy may have (toolhive-0.63 §5.2).
pub const LONGEST_OF_REMOTE: usize = 8192;

/// The words of conditions about what a workload's spec says of it.
const WORDS: Words = Words {
    condition: condition::AUTHZ_CONFIG_VALIDATED,
    valid: "AuthzConfigValid",
    not_found: reason::AUTHZ_CONFIG_MAP_NOT_FOUND,
    not_valid: reason::AUTHZ_POLICY_SYNTAX_INVALID,
    data_not_found: reason::AUTHZ_CONFIG_MAP_NOT_FOUND,
    data_not_valid: reason::AUTHZ_CONFIG_MAP_INVALID,
    bundle: None,
};

/// The use that a workload makes of what its `spec.authzConfig` says; none where that is absent. No policy there may be longer than `longest`.
pub fn authorization(spec: Option<&AuthzConfig>, longest: Option<usize>) -> Option<ConfigUse> {
    let spec = spec?;
    let config: Arc<dyn Config> = match &spec.config_map {
        Some(map) => Arc::new(InConfigMap::of(spec, map)),
        None => Arc::new(Inline::of(spec, longest)),
    };
    let used = ConfigUse::inline(Role::Guard, "spec.authzConfig", config, &[AUTHORIZATION]);
    Some(ConfigUse { words: Some(WORDS), ..used })
}

/// The sentence about a provider that policies in a spec name, in ToolHive's sense (toolhive-auth §4.1).
pub fn ignored_provider(spec: Option<&AuthzConfig>) -> Option<String> {
    let provider = spec?.inline.as_ref()?.primary_upstream_provider.as_ref()?;
    Some(format!(
        "spec.authzConfig.inline.primaryUpstreamProvider: {provider:?} has no effect: policies see the claims of the caller's own token"
    ))
}

/// The sentence about a document in the ConfigMap that a spec names, where `data` has that ConfigMap and it cannot be used.
pub fn text_problem(spec: Option<&AuthzConfig>, data: &Data) -> Option<String> {
    let map = spec?.config_map.as_ref().filter(|map| data.config_maps.contains_key(&map.name))?;
    let problem = InConfigMap::of(spec?, map).read_texts(data).err()?;
    Some(format!("spec.authzConfig.configMap: {problem}"))
}

/// Every rule that policies in a spec break by a change of `old`: texts that were stored before keep being admitted.
pub fn change_problems(old: Option<&AuthzConfig>, new: Option<&AuthzConfig>, longest: Option<usize>) -> Vec<Problem> {
    let inline = |spec: &AuthzConfig| Some(Inline::of(spec, longest)).filter(|_| spec.inline.is_some());
    match (old.and_then(inline), new.and_then(inline)) {
        (old, Some(new)) if old.as_ref() != Some(&new) => new.problems(),
        _ => Vec::new(),
    }
}
