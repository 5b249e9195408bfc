//! Builds inputs for plans and looks into what comes out.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::Pod,
};
use mcp_api::{v1alpha1::MCPWebhookConfig, v1beta1::MCPServer};
use mcp_operator::plan::{ChildKind, ChildRef, Plan, ServerInputs, Settings, digest, plan_server};
use serde_json::{Value, json};

/// What surrounds a server.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) server: MCPServer,
    pub(crate) webhook_config: Option<MCPWebhookConfig>,
    pub(crate) secrets: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) config_maps: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) deployment: Option<Deployment>,
    pub(crate) stateful_set: Option<StatefulSet>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) settings: Settings,
    pub(crate) now: jiff::Timestamp,
}

impl World {
    /// A server called `fetch` with this spec, its finalizer in place.
    pub(crate) fn of(spec: Value) -> Self {
        Self::around(json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
            "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3,
                "finalizers": ["mcpserver.toolhive.stacklok.dev/finalizer"]},
            "spec": spec,
        }))
    }

    pub(crate) fn around(server: Value) -> Self {
        Self {
            server: serde_json::from_value(server).unwrap(),
            webhook_config: None,
            secrets: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            deployment: None,
            stateful_set: None,
            pods: Vec::new(),
            settings: Settings {
                runner_image: "ghcr.io/stacklok/toolhive/proxyrunner:latest".into(),
                proxy_host: "0.0.0.0".into(),
                default_image_pull_secrets: Vec::new(),
            },
            now: "2026-11-21T00:00:00Z".parse().unwrap(),
        }
    }

    /// A streamable-HTTP server behind the webhook configuration `gates`.
    pub(crate) fn gated() -> Self {
        let mut world =
            Self::of(json!({"image": "x:1", "transport": "streamable-http", "webhookConfigRef": {"name": "gates"}}));
        world.webhook_config =
            Some(config("gates", json!({"validating": [{"name": "policy", "url": "https://policy/"}]})));
        world
    }

    pub(crate) fn secret(&mut self, name: &str, key: &str, value: &str) {
        self.secrets.entry(name.into()).or_default().insert(key.into(), digest(value.as_bytes()));
    }

    pub(crate) fn plan(&self) -> Plan {
        let pods: Vec<&Pod> = self.pods.iter().collect();
        plan_server(&ServerInputs {
            server: &self.server,
            webhook_config: self.webhook_config.as_ref(),
            secrets: &self.secrets,
            config_maps: &self.config_maps,
            deployment: self.deployment.as_ref(),
            stateful_set: self.stateful_set.as_ref(),
            pods: &pods,
            settings: &self.settings,
            now: self.now,
        })
    }

    /// Lets the cluster have what was planned, as far as plans look at it.
    pub(crate) fn applied(&mut self, plan: &Plan) {
        for absent in &plan.absent {
            match absent.kind {
                ChildKind::Deployment => self.deployment = None,
                ChildKind::StatefulSet => self.stateful_set = None,
                _ => {}
            }
        }
        for child in &plan.children {
            match child.reference.kind {
                ChildKind::Deployment => self.deployment = serde_json::from_value(child.object.clone()).unwrap(),
                ChildKind::StatefulSet => self.stateful_set = serde_json::from_value(child.object.clone()).unwrap(),
                _ => {}
            }
        }
        self.server.status = Some(plan.status.clone());
    }
}

pub(crate) fn config(name: &str, spec: Value) -> MCPWebhookConfig {
    serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig",
        "metadata": {"name": name, "namespace": "team", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

/// The document of a planned child.
pub(crate) fn child<'a>(plan: &'a Plan, kind: ChildKind, name: &str) -> Option<&'a Value> {
    plan.children.iter().find(|child| child.reference == ChildRef::new(kind, name)).map(|child| &child.object)
}

pub(crate) fn deployment(plan: &Plan) -> &Value {
    child(plan, ChildKind::Deployment, "fetch").expect("the proxy is planned")
}

pub(crate) fn stateful_set(plan: &Plan) -> &Value {
    child(plan, ChildKind::StatefulSet, "fetch").expect("the workload is planned")
}

pub(crate) fn run_config(plan: &Plan) -> &str {
    child(plan, ChildKind::ConfigMap, "fetch-runconfig").expect("the RunConfig is planned")["data"]["runconfig.json"]
        .as_str()
        .unwrap()
}

/// The checksum on the proxy's pod template.
pub(crate) fn checksum(plan: &Plan) -> &str {
    deployment(plan)["spec"]["template"]["metadata"]["annotations"]["toolhive.stacklok.dev/runconfig-checksum"]
        .as_str()
        .expect("the checksum is there")
}

/// Reason and message of a condition with this status.
pub(crate) fn condition(plan: &Plan, type_: &str, status: &str) -> Option<(String, String)> {
    let conditions = plan.status.conditions.as_deref().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)?;
    Some((found.reason.clone(), found.message.clone()))
}

pub(crate) fn is_absent(plan: &Plan, kind: ChildKind, name: &str) -> bool {
    plan.absent.contains(&ChildRef::new(kind, name))
}

/// A pod of the proxy in this state.
pub(crate) fn pod(phase: &str, ready: bool, waiting: Option<&str>) -> Pod {
    let state = waiting.map(|reason| json!({"waiting": {"reason": reason}}));
    serde_json::from_value(json!({
        "metadata": {"name": "fetch-1"},
        "status": {"phase": phase, "containerStatuses": [
            {"name": "toolhive", "ready": ready, "image": "", "imageID": "", "restartCount": 0, "state": state},
        ]},
    }))
    .unwrap()
}
