//! MCPTelemetryConfig: what is recorded of requests, and where it goes.

mod collector;
mod rules;

use mcp_api::v1beta1::MCPTelemetryConfig;
use mcp_plan::{
    config::{Needs, Target, Words},
    problem::Problem,
    reference::Reference,
    settings::Settings,
};
use mcp_runconfig::{RunConfig, TELEMETRY};

use crate::{config::ConfigKind, subject::Subject};

/// Reason: it is not valid, or a Secret or ConfigMap that it names is missing or cannot be used.
const INVALID: &str = "TelemetryConfigRefInvalid";
/// The effect of a Secret or ConfigMap that does not exist: the end of a sentence.
const MISSING: &str = "until then the workloads that refer to this stay as they are";

impl Subject for MCPTelemetryConfig {
    const FINALIZER: Option<&'static str> = Some("mcptelemetryconfig.toolhive.stacklok.dev/finalizer");
    const RESOURCES: [&'static str; 3] =
        ["mcptelemetryconfigs", "mcptelemetryconfigs/status", "mcptelemetryconfigs/finalizers"];

    fn references(&self) -> Vec<Reference> {
        let Some(collector) = &self.spec.open_telemetry else { return Vec::new() };
        let secrets = collector.sensitive_headers.iter().flatten().enumerate().map(|(at, header)| {
            Reference::to_key(format!("{}[{at}].secretKeyRef", rules::SENSITIVE_HEADERS), &header.secret_key_ref)
        });
        let bundle = collector::ca_bundle(collector)
            .map(|file| Reference::to_file(format!("{}.configMapRef", rules::CA_BUNDLE), &file));
        secrets.chain(bundle).map(|reference| Reference { while_missing: MISSING, ..reference }).collect()
    }

    fn problems(&self) -> Vec<Problem> {
        self.spec.open_telemetry.as_ref().map(rules::problems).unwrap_or_default()
    }

    fn settings_problems(&self, settings: &Settings) -> Vec<Problem> {
        let collector = self.spec.open_telemetry.as_ref();
        collector.and_then(|collector| rules::endpoint_problem(collector, settings)).into_iter().collect()
    }

    fn warnings(&self, _: &Settings) -> Vec<String> {
        self.spec.open_telemetry.as_ref().map(rules::warnings).unwrap_or_default()
    }
}

impl ConfigKind for MCPTelemetryConfig {
    const WORDS: Words = Words {
        condition: "TelemetryConfigRefValidated",
        valid: "TelemetryConfigRefValid",
        not_found: "TelemetryConfigRefNotFound",
        not_valid: INVALID,
        data_not_found: INVALID,
        data_not_valid: INVALID,
        // ToolHive's operator has no condition about this bundle.
        bundle: None,
    };
    const MIDDLEWARE: &'static [&'static str] = &[TELEMETRY];

    /// The name of the workload in traces and metrics, where it is not its own.
    type Terms = Option<String>;

    fn needs(&self, target: &Target, service: &Option<String>) -> Needs {
        collector::needs(&self.spec, target, service.as_deref())
    }

    fn render(&self, target: &Target, service: &Option<String>, document: &mut RunConfig) {
        document.telemetry_config = Some(collector::rendered(&self.spec, target, service.as_deref()));
    }
}
