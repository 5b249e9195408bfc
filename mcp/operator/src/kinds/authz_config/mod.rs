//! MCPAuthzConfig: who may call what.

use mcp_api::v1beta1::{MCPAuthzConfig, MCPAuthzConfigSpec};
use mcp_plan::{
    authorization,
    config::{ConfigUse, Part, PolicyTerms, Target, Words},
    problem::Problem,
    reference::Reference,
    settings::Settings,
};
use mcp_runconfig::{AUTHORIZATION, AuthzConfig, RunConfig};
use serde_json::{Value, json};

use crate::{config::ConfigKind, subject::Subject};

/// The types, each with the member of a document that has its rules.
const TYPES: [(&str, &str); 2] = [("cedarv1", "cedar"), ("httpv1", "pdp")];
/// Reason: it breaks a rule. It names nothing that could be missing.
const NOT_VALID: &str = "AuthzConfigRefNotValid";

impl Subject for MCPAuthzConfig {
    const FINALIZER: Option<&'static str> = Some("mcpauthzconfig.toolhive.stacklok.dev/finalizer");
    const RESOURCES: [&'static str; 3] = ["mcpauthzconfigs", "mcpauthzconfigs/status", "mcpauthzconfigs/finalizers"];

    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }

    fn problems(&self) -> Vec<Problem> {
        let problem = match document(&self.spec) {
            Ok(config) => authorization::problem(&config).map(in_spec),
            Err(problem) => Some(problem),
        };
        problem.into_iter().collect()
    }

    fn settings_problems(&self, settings: &Settings) -> Vec<Problem> {
        let document = document(&self.spec).ok();
        document
            .and_then(|config| authorization::endpoint_problem(&config, settings))
            .map(in_spec)
            .into_iter()
            .collect()
    }

    fn warnings(&self, _: &Settings) -> Vec<String> {
        let pdp = document(&self.spec).ok().and_then(|config| config.pdp?.http);
        let unchecked = pdp.filter(|http| http.insecure_skip_verify);
        let warning =
            "spec.config.http.insecure_skip_verify: whoever answers at that address decides who may call what";
        unchecked.map(|_| warning.to_owned()).into_iter().collect()
    }
}

impl ConfigKind for MCPAuthzConfig {
    const WORDS: Words = Words {
        condition: "AuthzConfigRefValidated",
        valid: "AuthzConfigRefValid",
        not_found: "AuthzConfigRefNotFound",
        not_valid: NOT_VALID,
        data_not_found: NOT_VALID,
        data_not_valid: NOT_VALID,
        bundle: None,
    };
    const VALIDITY: (&'static str, &'static str) = ("ConfigValid", "ConfigInvalid");
    const MIDDLEWARE: &'static [&'static str] = &[AUTHORIZATION];

    type Terms = PolicyTerms;

    fn part(&self, asked: &ConfigUse, _: &Target) -> Part {
        let is_service = self.spec.kind != TYPES[0].0;
        let misfit = (PolicyTerms::are_tried(asked) && is_service).then_some(PolicyTerms::NO_SERVICE);
        Part { misfit, ..Part::of(asked) }
    }

    fn render(&self, _: &Target, terms: &PolicyTerms, run_config: &mut RunConfig) {
        let document = document(&self.spec).ok();
        if terms.tried {
            run_config.portcullis.shadow_policies = document;
        } else {
            run_config.authz_config = document;
        }
    }
}

/// The document of a proxy.
///
/// # Errors
/// The field that does not fit.
fn document(spec: &MCPAuthzConfigSpec) -> Result<AuthzConfig, Problem> {
    let Some((kind, member)) = TYPES.iter().find(|(kind, _)| *kind == spec.kind) else {
        let message = format!("unsupported authorizer type: {}; write cedarv1 or httpv1", spec.kind);
        return Err(Problem::new("spec.type", message));
    };
    if spec.config.is_empty() {
        return Err(Problem::new("spec.config", "config field is empty; write the rules there"));
    }
    let config = authorization::read(json!({"type": kind, *member: Value::Object(spec.config.clone())}));
    Ok(AuthzConfig { sorted: true, ..config.map_err(in_spec)? })
}

/// A problem of the document, said of the field that it comes from.
fn in_spec(Problem { field, message }: Problem) -> Problem {
    let member = TYPES.iter().find_map(|(_, member)| field.strip_prefix(member)?.strip_prefix('.'));
    Problem { field: member.map_or("spec.config".to_owned(), |member| format!("spec.config.{member}")), message }
}
