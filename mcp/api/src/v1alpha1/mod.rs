//! Kinds that are stored as `v1alpha1`.

mod webhook_config;

pub use self::webhook_config::{
    FailurePolicy, MCPWebhookConfig, MCPWebhookConfigSpec, MCPWebhookConfigStatus, Webhook, WebhookTlsConfig,
};
pub use crate::reference::SecretKeyRef;
