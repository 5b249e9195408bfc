//! MCPExternalAuthConfig: the credential of requests to the server behind a workload.

mod pairs;

use mcp_api::{
    names::condition,
    v1beta1::{MCPExternalAuthConfig, external_auth::ExternalAuthType},
};
use mcp_plan::{
    config::{ConfigUse, Needs, Part, Target, Words},
    external_auth,
    problem::Problem,
    reference::Reference,
    settings::Settings,
};
use mcp_runconfig::RunConfig;

use crate::{config::ConfigKind, subject::Subject};

impl Subject for MCPExternalAuthConfig {
    const FINALIZER: Option<&'static str> = Some("mcpexternalauthconfig.toolhive.stacklok.dev/finalizer");
    const RESOURCES: [&'static str; 3] =
        ["mcpexternalauthconfigs", "mcpexternalauthconfigs/status", "mcpexternalauthconfigs/finalizers"];

    fn references(&self) -> Vec<Reference> {
        external_auth::references(&self.spec)
    }

    fn problems(&self) -> Vec<Problem> {
        external_auth::problems(&self.spec)
    }

    fn settings_problems(&self, settings: &Settings) -> Vec<Problem> {
        external_auth::endpoint_problem(&self.spec, settings).into_iter().collect()
    }

    fn warnings(&self, _: &Settings) -> Vec<String> {
        external_auth::warnings(&self.spec)
    }
}

impl ConfigKind for MCPExternalAuthConfig {
    /// The words of uses for a credential.
    const WORDS: Words = Words {
        condition: condition::EXTERNAL_AUTH_CONFIG_VALIDATED,
        valid: "ExternalAuthConfigValid",
        not_found: "ExternalAuthConfigNotFound",
        not_valid: "InvalidExternalAuthConfig",
        data_not_found: "ExternalAuthSecretNotFound",
        data_not_valid: "ExternalAuthSecretNotValid",
        bundle: None,
    };
    /// Its type decides.
    const MIDDLEWARE: &'static [&'static str] = &[];

    type Terms = ();

    fn part(&self, asked: &ConfigUse, target: &Target) -> Part {
        pairs::part(&self.spec, asked, target)
    }

    fn needs(&self, target: &Target, (): &()) -> Needs {
        external_auth::needs(&self.spec, target.behind)
    }

    fn render(&self, _: &Target, (): &(), document: &mut RunConfig) {
        external_auth::render(&self.spec, document);
    }

    fn invalid(&self) -> &'static str {
        if self.spec.kind == ExternalAuthType::Obo { pairs::ENTERPRISE } else { Self::VALIDITY.1 }
    }
}
