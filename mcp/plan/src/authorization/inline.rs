//! Policies in the spec of a workload.

use crate::{
    config::{Config, Target, Terms},
    digest::short_digest,
    problem::Problem,
    settings::Settings,
};
use mcp_api::v1beta1;
use mcp_runconfig::{AuthzConfig, CedarConfig, RunConfig};

use super::check;

/// Policies in the spec of a workload.
#[derive(Debug, PartialEq)]
pub(super) struct Inline {
    config: AuthzConfig,
    longest: Option<usize>,
}

impl Inline {
    /// The policies of a spec. The provider that it may name is left out: proxies of one server take claims from the caller's own token.
    pub(super) fn of(spec: &v1beta1::AuthzConfig, longest: Option<usize>) -> Self {
        let inline = spec.inline.as_ref();
        let config = AuthzConfig::of_policies(CedarConfig {
            policies: inline.map(|it| it.policies.clone()).unwrap_or_default(),
            entities_json: inline.map(|it| it.entities_json.clone()).unwrap_or_default(),
            group_claim_name: spec.group_claim_name.clone().unwrap_or_default(),
            role_claim_name: spec.role_claim_name.clone().unwrap_or_default(),
            group_entity_type: spec.group_entity_type.clone().unwrap_or_default(),
            ..CedarConfig::default()
        });
        Self { config, longest }
    }

    /// Every rule that they break.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let policies = self.config.cedar.iter().flat_map(|cedar| &cedar.policies).enumerate();
        let longest = self.longest.unwrap_or(usize::MAX);
        let long = policies.filter(|(_, policy)| policy.len() > longest).map(|(at, policy)| {
            let message = format!("has {} bytes; write several policies of at most {longest} bytes each", policy.len());
            Problem::new(format!("spec.authzConfig.inline.policies[{at}]"), message)
        });
        let long: Vec<_> = long.collect();
        if !long.is_empty() {
            return long;
        }
        let in_spec = |Problem { field, message }| Problem { field: in_spec(&field), message };
        check::problem(&self.config).map(in_spec).into_iter().collect()
    }
}

impl Config for Inline {
    fn problems(&self, _: &Settings) -> Vec<Problem> {
        self.problems()
    }

    fn hash(&self) -> String {
        short_digest(&self.config)
    }

    fn render(&self, _: &Target, _: &Terms, document: &mut RunConfig) {
        document.authz_config = Some(self.config.clone());
    }
}

/// The field of a spec that a member of the document comes from.
fn in_spec(member: &str) -> String {
    let field = match member.strip_prefix("cedar.").unwrap_or(member) {
        "entities_json" => "inline.entitiesJson",
        "group_entity_type" => "groupEntityType",
        policy => return format!("spec.authzConfig.inline.{policy}"),
    };
    format!("spec.authzConfig.{field}")
}
