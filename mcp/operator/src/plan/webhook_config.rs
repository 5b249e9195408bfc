//! The plan of one MCPWebhookConfig.

use mcp_api::{
    names::{condition, reason},
    v1alpha1::{MCPWebhookConfigSpec, MCPWebhookConfigStatus},
};

use portcullis::controller::Conditions;

use super::{ConfigInputs, ConfigPlan, EventType, PlannedEvent, digest, rules};

/// Length of `status.configHash`: enough to tell two specs apart, short enough to read.
const HASH_LENGTH: usize = 16;

/// `status.configHash` of a spec.
pub fn config_hash(spec: &MCPWebhookConfigSpec) -> String {
    // Members serialize in the order of their declaration: equal specs give equal bytes.
    let mut hash = digest(&serde_json::to_vec(spec).unwrap_or_default());
    hash.truncate(HASH_LENGTH);
    hash
}

/// Decides what should become of one MCPWebhookConfig.
pub fn plan_webhook_config(inputs: &ConfigInputs<'_>) -> ConfigPlan {
    let config = inputs.config;
    let previous = config.status.clone().unwrap_or_default();
    let mut conditions = Conditions::after(previous.conditions.as_ref(), config.metadata.generation, inputs.now);

    let problems = rules::check_webhook_config(&config.spec);
    let valid = problems.is_empty();
    if valid {
        conditions.set(condition::VALID, true, reason::VALIDATION_SUCCEEDED, "Spec validation passed");
    } else {
        let message = rules::sentences(&problems, |problem| problem.message.clone());
        conditions.set(condition::VALID, false, reason::VALIDATION_FAILED, message);
    }

    let mut servers = inputs.referencing_servers.to_vec();
    servers.sort();
    servers.dedup();
    let deleting = config.metadata.deletion_timestamp.is_some();
    if deleting && !servers.is_empty() {
        let message = format!("Cannot delete: referenced by MCPServers: {}", servers.join(", "));
        conditions.set(condition::DELETION_BLOCKED, true, reason::REFERENCED_BY_WORKLOADS, message);
    }
    let may_go = deleting && servers.is_empty();

    let events = conditions
        .news()
        .map(|new| match (new.type_.as_str(), new.status.as_str()) {
            (condition::VALID, "True") => PlannedEvent::new(EventType::Normal, &new.reason, &new.message),
            (condition::DELETION_BLOCKED, _) => {
                PlannedEvent::new(EventType::Warning, condition::DELETION_BLOCKED, &new.message)
            }
            _ => PlannedEvent::new(EventType::Warning, &new.reason, &new.message),
        })
        .collect();
    let status = MCPWebhookConfigStatus {
        conditions: conditions.into_list(),
        // The hash of the last spec that could be used.
        config_hash: if valid { Some(config_hash(&config.spec)) } else { previous.config_hash },
        observed_generation: config.metadata.generation,
        referencing_servers: if servers.is_empty() { None } else { Some(servers) },
    };
    ConfigPlan { may_go, status, events }
}
