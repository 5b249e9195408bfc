//! The controller of MCPWebhookConfigs.

use std::sync::Arc;

use kube::Client;
use mcp_api::v1alpha1::MCPWebhookConfig;

use super::{Custom, ReconcileError, Stores, custom::Writer, events::Events};
use crate::{
    apply::names,
    plan::{ConfigInputs, Finalizer, names::WEBHOOK_CONFIG_FINALIZER, plan_webhook_config},
    work::{Key, Next},
};

/// Keeps the status and the finalizer of MCPWebhookConfigs.
pub(super) struct WebhookConfigController {
    stores: Arc<Stores>,
    writer: Writer<MCPWebhookConfig>,
    events: Events,
}

// === impl WebhookConfigController ===

impl WebhookConfigController {
    pub(super) fn new(client: Client, stores: Arc<Stores>) -> Self {
        let writer = Writer::new(client.clone(), names::WEBHOOK_CONFIG_STATUS, Custom::webhook_config);
        Self { stores, writer, events: Events::new(client, "mcpwebhookconfig-controller") }
    }

    pub(super) async fn reconcile(&self, key: Key) -> Result<Next, ReconcileError> {
        let Some(live) = self.stores.configs.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let servers = self.stores.servers_with_config(&key.namespace, &key.name);
        let config = match &live.object {
            Ok(config) => config,
            Err(error) => {
                tracing::warn!(namespace = key.namespace, name = key.name, error, "MCPWebhookConfig does not decode");
                if live.deleting && servers.is_empty() {
                    self.release(&live, Finalizer::Remove).await?;
                }
                return Ok(Next::Wait);
            }
        };
        let plan =
            plan_webhook_config(&ConfigInputs { config, referencing_servers: &servers, now: jiff::Timestamp::now() });
        if plan.finalizer == Finalizer::Remove {
            // Nobody reads the status of what is about to be gone.
            self.release(&live, plan.finalizer).await?;
            return Ok(Next::Wait);
        }
        self.release(&live, plan.finalizer).await?;
        if let Some(written) = self.writer.status(&live, config, &plan.status).await? {
            self.stores.configs.written(written);
            self.events.publish(config, &plan.events).await;
        }
        Ok(Next::Wait)
    }

    async fn release(&self, live: &Custom<MCPWebhookConfig>, wish: Finalizer) -> Result<(), ReconcileError> {
        if let Some(written) = self.writer.finalizer(live, WEBHOOK_CONFIG_FINALIZER, wish).await? {
            self.stores.configs.written(written);
        }
        Ok(())
    }
}
