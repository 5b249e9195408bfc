//! Admission of MCPWebhookConfigs.

use std::sync::Arc;

use mcp_api::v1alpha1::MCPWebhookConfig;
use portcullis::webhooks::{Context, Validator, Verdict};

use super::{Admission, missing};
use crate::{controllers::Stores, plan::rules::check_webhook_config};

/// The rules of MCPWebhookConfigs as an admission webhook.
pub(super) struct WebhookConfigRules {
    pub(super) admission: Admission,
    pub(super) stores: Arc<Stores>,
}

impl Validator<MCPWebhookConfig> for WebhookConfigRules {
    async fn create(&self, new: Arc<MCPWebhookConfig>, context: Context) -> Verdict {
        let verdict = self.admission.judge(check_webhook_config(&new.spec));
        if !verdict.is_allowed() {
            return verdict;
        }
        let namespace = context.namespace.as_deref().unwrap_or_default();
        missing::of_webhook_config(&new, namespace, &self.stores).into_iter().fold(verdict, Verdict::warn)
    }

    /// What does not touch the spec is not judged: labels and finalizers go through whatever is stored.
    async fn update(&self, old: Arc<MCPWebhookConfig>, new: Arc<MCPWebhookConfig>, context: Context) -> Verdict {
        if old.spec == new.spec { Verdict::allow() } else { self.create(new, context).await }
    }
}
