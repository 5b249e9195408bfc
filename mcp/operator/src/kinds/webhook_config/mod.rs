//! MCPWebhookConfig: the webhooks that see every request of a workload.

mod translate;

use mcp_api::{names::annotation, v1alpha1::MCPWebhookConfig};
use mcp_plan::{
    config::{Needs, Target, Words},
    problem::Problem,
    reference::Reference,
    settings::Settings,
    webhooks,
};
use mcp_runconfig::{
    RunConfig,
    webhook::{MUTATING, VALIDATING},
};

use crate::{config::ConfigKind, subject::Subject};

impl Subject for MCPWebhookConfig {
    const FINALIZER: Option<&'static str> = Some("mcpwebhookconfig.toolhive.stacklok.dev/finalizer");
    const RESOURCES: [&'static str; 3] =
        ["mcpwebhookconfigs", "mcpwebhookconfigs/status", "mcpwebhookconfigs/finalizers"];

    fn references(&self) -> Vec<Reference> {
        translate::secrets(&self.spec)
    }

    fn problems(&self) -> Vec<Problem> {
        translate::problems(&self.spec)
    }

    fn settings_problems(&self, settings: &Settings) -> Vec<Problem> {
        translate::image_problems(&self.spec, settings)
    }

    fn warnings(&self, _: &Settings) -> Vec<String> {
        webhooks::warnings(translate::each(&self.spec))
    }
}

impl ConfigKind for MCPWebhookConfig {
    const WORDS: Words = Words {
        condition: "WebhookConfigValidated",
        valid: "WebhookConfigValid",
        not_found: "WebhookConfigNotFound",
        not_valid: "WebhookConfigNotValid",
        data_not_found: "WebhookSecretNotFound",
        data_not_valid: "WebhookSecretNotValid",
        bundle: None,
    };
    const ANNOTATION: Option<&'static str> = Some(annotation::WEBHOOK_CONFIG);
    const MIDDLEWARE: &'static [&'static str] = &[MUTATING, VALIDATING];

    type Terms = ();

    fn needs(&self, _: &Target, (): &()) -> Needs {
        Needs { files: translate::translated(&self.spec).2, ..Needs::default() }
    }

    fn render(&self, _: &Target, (): &(), document: &mut RunConfig) {
        let (mutating, validating, _) = translate::translated(&self.spec);
        (document.mutating_webhooks, document.validating_webhooks) = (mutating, validating);
    }
}
