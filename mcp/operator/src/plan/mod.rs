//! From what was observed to what should be: children, status, events. Pure; the clock is an input.
//!
//! [`plan_server`] decides about one MCPServer, [`plan_webhook_config`] about one MCPWebhookConfig. The rules that
//! both the plans and the admission webhooks hold objects to are in [`rules`].
//!
//! Children hold only what the operator wants to own: no defaults, nothing taken from a fetched object, maps sorted.

mod access;
mod backend;
mod checks;
mod child;
mod environment;
mod gate;
mod guards;
mod metadata;
pub mod names;
mod pod_template;
mod proxy;
mod quantity;
pub mod rules;
mod runconfig;
mod server;
mod status;
mod webhook_config;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::Pod,
};
use mcp_api::{
    v1alpha1::{MCPWebhookConfig, MCPWebhookConfigStatus},
    v1beta1::{MCPServer, MCPServerStatus},
};

pub use child::{Child, ChildKind, ChildRef, digest};
pub use portcullis::controller::{EventType, PlannedEvent};
pub use server::{plan_server, references};
pub use webhook_config::{config_hash, plan_webhook_config};

/// What the operator was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of the proxy.
    pub runner_image: String,
    /// Address proxies listen on.
    pub proxy_host: String,
    /// Image pull secrets added behind each server's own.
    pub default_image_pull_secrets: Vec<String>,
}

/// Everything [`plan_server`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct ServerInputs<'a> {
    /// The server.
    pub server: &'a MCPServer,
    /// The MCPWebhookConfig that `spec.webhookConfigRef` names; `None` when it does not exist (or nothing is named).
    pub webhook_config: Option<&'a MCPWebhookConfig>,
    /// Per Secret of [`References::secrets`] that exists: its keys and the [`digest`] of each value.
    pub secrets: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// Per ConfigMap of [`References::config_maps`] that exists: its data.
    pub config_maps: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The live proxy Deployment.
    pub deployment: Option<&'a Deployment>,
    /// The live StatefulSet of the MCP server.
    pub stateful_set: Option<&'a StatefulSet>,
    /// The pods that carry [`names::proxy_labels`].
    pub pods: &'a [&'a Pod],
    /// What the operator was started with.
    pub settings: &'a Settings,
    /// The time, for conditions that change.
    pub now: Timestamp,
}

/// What a server refers to, all in its own namespace. A change of any of it changes the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The MCPWebhookConfig.
    pub webhook_config: Option<String>,
    /// Secrets, the webhook configuration's included.
    pub secrets: BTreeSet<String>,
    /// ConfigMaps.
    pub config_maps: BTreeSet<String>,
}

/// What should become of one MCPServer.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Objects to apply, in this order. What is neither here nor in `absent` is left as it is.
    pub children: Vec<Child>,
    /// Objects to delete where they exist and are ours, in this order, before the children are applied. One of them
    /// may be planned as a child again once it is gone.
    pub absent: Vec<ChildRef>,
    /// The status, complete.
    pub status: MCPServerStatus,
    /// What to tell a reader of `kubectl describe`; only what the last status did not say yet.
    pub events: Vec<PlannedEvent>,
}

/// Everything [`plan_webhook_config`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct ConfigInputs<'a> {
    /// The configuration.
    pub config: &'a MCPWebhookConfig,
    /// Names of the MCPServers of its namespace that refer to it now, in any order.
    pub referencing_servers: &'a [String],
    /// The time, for conditions that change.
    pub now: Timestamp,
}

/// What should become of one MCPWebhookConfig.
#[derive(Clone, Debug)]
pub struct ConfigPlan {
    /// It is being deleted and nobody refers to it any more.
    pub may_go: bool,
    /// The status, complete.
    pub status: MCPWebhookConfigStatus,
    /// What to tell a reader of `kubectl describe`; only what the last status did not say yet.
    pub events: Vec<PlannedEvent>,
}
