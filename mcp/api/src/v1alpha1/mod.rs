//! Kinds that are stored as `v1alpha1`.

mod webhook_config;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::crd::CustomResourceExt as _;

pub use self::webhook_config::{
    FailurePolicy, MCPWebhookConfig, MCPWebhookConfigSpec, MCPWebhookConfigStatus, Webhook, WebhookMatch, WebhookMode,
    WebhookTlsConfig,
};
pub use crate::reference::{SecretKeyRef, WorkloadRef};

/// Every kind that is stored as this version, as its type derives it.
pub(crate) fn derived() -> Vec<CustomResourceDefinition> {
    vec![MCPWebhookConfig::crd()]
}
