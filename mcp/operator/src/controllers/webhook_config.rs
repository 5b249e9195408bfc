//! The controller of MCPWebhookConfigs.

use std::sync::Arc;

use mcp_api::v1alpha1::MCPWebhookConfig;
use portcullis::controller::{Cleanup, ControllerError, Leaving, Next, Pass};

use super::Stores;
use crate::plan::{ConfigInputs, plan_webhook_config};

/// Keeps the status of MCPWebhookConfigs.
pub(super) struct WebhookConfigController {
    stores: Arc<Stores>,
}

// === impl WebhookConfigController ===

impl WebhookConfigController {
    pub(super) fn new(stores: Arc<Stores>) -> Self {
        Self { stores }
    }

    /// Writes the status.
    pub(super) async fn reconcile(&self, pass: Pass<MCPWebhookConfig>) -> Result<Next, ControllerError> {
        self.settle(&pass).await?;
        Ok(Next::Wait)
    }

    /// A configuration stays until nobody refers to it any more.
    pub(super) async fn clean_up(&self, leaving: Leaving<MCPWebhookConfig>) -> Result<Cleanup, ControllerError> {
        let may_go = match leaving.pass {
            Ok(pass) => self.settle(&pass).await?,
            Err(_) => self.stores.servers_with_config(&leaving.key.namespace, &leaving.key.name).is_empty(),
        };
        Ok(if may_go { Cleanup::Done } else { Cleanup::Waits(Next::Wait) })
    }

    /// Returns whether it may go. Nobody reads the status of what is about to be gone.
    async fn settle(&self, pass: &Pass<MCPWebhookConfig>) -> Result<bool, ControllerError> {
        let servers = self.stores.servers_with_config(&pass.key.namespace, &pass.key.name);
        let inputs = ConfigInputs { config: &pass.object, referencing_servers: &servers, now: jiff::Timestamp::now() };
        let plan = plan_webhook_config(&inputs);
        if !plan.may_go && pass.status(&plan.status).await? {
            pass.publish(&plan.events).await;
        }
        Ok(plan.may_go)
    }
}
