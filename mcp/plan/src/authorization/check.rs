//! The rules of an authorization document, whoever wrote it. A problem names the member of the document.

use crate::{problem::Problem, settings::Settings};
use mcp_authz::Policies;
use mcp_runconfig::{
    AuthzConfig, AuthzKind, CedarConfig, Parameters as _, ParseError, RunConfig,
    endpoint::{EndpointPolicy, without_secrets},
};
use serde_json::Value;

/// Reads a document.
///
/// # Errors
/// The member that does not fit.
pub fn read(document: Value) -> Result<AuthzConfig, Problem> {
    AuthzConfig::read(document, "").map_err(told)
}

/// The first rule that it breaks; with it no proxy would start.
pub fn problem(config: &AuthzConfig) -> Option<Problem> {
    config.check().err().map(told).or_else(|| policy_problem(config))
}

/// The policy decision point is at a URL that a proxy refuses to call.
pub fn endpoint_problem(config: &AuthzConfig, settings: &Settings) -> Option<Problem> {
    let http = config.pdp.as_ref().filter(|_| config.kind == AuthzKind::Http)?.http.as_ref()?;
    let policy = EndpointPolicy::all_but_metadata(settings.exempt_endpoints.clone());
    let problem = policy.check_base_url(&http.url).err()?;
    Some(Problem::new("pdp.http.url", format!("{:?} {problem}", without_secrets(&http.url))))
}

/// The claims that policies ask for and that no caller of the document's proxy has: a word and a sentence.
pub fn missing_claims(document: &RunConfig) -> Option<(&'static str, String)> {
    let config = document.authz_config.as_ref().filter(|config| config.kind == AuthzKind::Cedar)?;
    let CedarConfig {
        primary_upstream_provider: provider, group_claim_name, role_claim_name, multi_valued_claims, ..
    } = config.cedar.as_ref()?;
    if !provider.is_empty() {
        let message = format!(
            "primary_upstream_provider {provider:?} needs an embedded authorization server, which this version does not have: the \
             proxy refuses every call that policies decide on; remove it"
        );
        return Some(("NoUpstreamProvider", message));
    }
    let named = [group_claim_name, role_claim_name].into_iter().chain(multi_valued_claims);
    let named: Vec<_> = named.filter(|name| !name.is_empty()).map(|name| format!("{name:?}")).collect();
    let message = || {
        let named = named.join(", ");
        format!(
            "policies read {named} of tokens, and nobody logs in: every caller is the local user, without them; have callers log in"
        )
    };
    (!document.requires_login() && !named.is_empty()).then(|| ("NoLogin", message()))
}

/// The first member that Cedar does not take. The sentence about a policy has its line and column.
fn policy_problem(config: &AuthzConfig) -> Option<Problem> {
    let cedar = config.cedar.as_ref().filter(|_| config.kind == AuthzKind::Cedar)?;
    let (member, message) = Policies::parse(cedar, "").err()?.parts();
    Some(Problem::new(format!("cedar.{member}"), message))
}

fn told(ParseError { field, problem, fix, .. }: ParseError) -> Problem {
    Problem::new(field, format!("{problem}; {fix}"))
}
