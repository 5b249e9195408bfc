//! Builds inputs for plans and looks into what comes out.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{ResourceExt as _, core::object::HasStatus};
use mcp_api::{
    v1alpha1::MCPWebhookConfig,
    v1beta1::{MCPAuthzConfig, MCPExternalAuthConfig, MCPOIDCConfig, MCPServer, MCPTelemetryConfig, MCPToolConfig},
};
use mcp_operator::{
    config::{ConfigKind, erased},
    workload::{Inputs, Reach, Workload, plan_workload},
};
use mcp_plan::{
    config::Configs,
    digest::DigestKey,
    guards::ProxyContainer,
    reference::{Data, Entry},
    settings::Settings,
    workload::{Child, ChildKind, ChildRef, Opened},
};
use portcullis::controller::PlannedEvent;
use serde_json::{Value, json};

/// The plan of a workload.
#[derive(Debug)]
pub(crate) struct Plan<W: HasStatus = MCPServer> {
    pub(crate) children: Vec<Child>,
    pub(crate) absent: Vec<ChildRef>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) status: W::Status,
    pub(crate) events: Vec<PlannedEvent>,
    pub(crate) again: Option<Duration>,
}

/// What surrounds a workload.
#[derive(Clone)]
pub(crate) struct World<W = MCPServer> {
    pub(crate) workload: W,
    pub(crate) configs: Configs,
    pub(crate) data: Data,
    pub(crate) unseen: bool,
    pub(crate) unreadable: Option<String>,
    pub(crate) denied: Option<String>,
    pub(crate) deployment: Option<Deployment>,
    pub(crate) children: BTreeSet<ChildRef>,
    pub(crate) opened: BTreeMap<ChildRef, Opened>,
    pub(crate) pods: Vec<Pod>,
    /// The pods of the MCP server.
    pub(crate) backend_pods: Vec<Pod>,
    pub(crate) reach: Option<Reach>,
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

    /// A streamable-HTTP server behind the webhook configuration `gates`.
    pub(crate) fn gated() -> Self {
        let mut world =
            Self::of(json!({"image": "x:1", "transport": "streamable-http", "webhookConfigRef": {"name": "gates"}}));
        world.has(config("gates", json!({"validating": [{"name": "policy", "url": "https://policy/"}]})));
        world
    }

    /// A streamable-HTTP server with the tool configuration `tools`.
    pub(crate) fn tooled() -> Self {
        let mut world =
            Self::of(json!({"image": "x:1", "transport": "streamable-http", "toolConfigRef": {"name": "tools"}}));
        world.has(tool_config("tools", json!({"toolsFilter": ["fetch"]})));
        world
    }

    /// A streamable-HTTP server whose callers log in as the configuration `idp` says, which needs a Secret and a ConfigMap.
    pub(crate) fn login() -> Self {
        let mut world = Self::of(json!({
            "image": "x:1", "transport": "streamable-http", "oidcConfigRef": {"name": "idp", "audience": "fetch"},
        }));
        world.has(oidc_config(
            "idp",
            inline(json!({
                "clientId": "mcp", "clientSecretRef": {"name": "client", "key": "secret"},
                "caBundleRef": {"configMapRef": {"name": "idp-ca", "key": ""}},
            })),
        ));
        world.secret("client", "secret", "hunter2");
        world.config_map("idp-ca", "ca.crt", &super::pem::authority());
        world
    }
}

impl<W> World<W>
where
    W: Workload,
    W::Status: Clone,
{
    /// Around this one, where nothing else exists.
    pub(crate) fn around(workload: Value) -> Self {
        Self {
            workload: serde_json::from_value(workload).unwrap(),
            configs: Configs::new(),
            data: Data::default(),
            unseen: false,
            unreadable: None,
            denied: None,
            deployment: None,
            children: BTreeSet::new(),
            opened: BTreeMap::new(),
            pods: Vec::new(),
            backend_pods: vec![backend_pod("Running", json!({"ready": true, "state": {"running": {}}}))],
            reach: None,
            settings: Settings {
                runner_image: "ghcr.io/stacklok/toolhive/proxyrunner:latest".into(),
                proxy_host: "0.0.0.0".into(),
                runner_middleware: mcp_runconfig::chain::abilities(),
                ..Settings::default()
            },
            now: "2026-11-21T00:00:00Z".parse().unwrap(),
        }
    }

    /// A pod of the Deployment as it is now, in this state.
    pub(crate) fn pod_of_now(&self, phase: &str, ready: bool, waiting: Option<&str>) -> Pod {
        let spec = self.deployment.as_ref().and_then(|live| live.spec.clone()).expect("the proxy exists");
        let mut pod = pod(phase, ready, waiting);
        pod.metadata.annotations = spec.template.metadata.and_then(|metadata| metadata.annotations);
        pod.spec = spec.template.spec;
        pod
    }

    /// Lets this configuration exist, in the place of one of its kind and name.
    pub(crate) fn has<K: ConfigKind>(&mut self, config: K) {
        self.configs.insert((K::kind(&()), config.name_any()), erased(Arc::new(config)));
    }

    /// The hash of a configuration that exists.
    pub(crate) fn hash(&self, kind: &'static str, name: &str) -> String {
        self.configs[&(kind.into(), name.to_owned())].hash()
    }

    pub(crate) fn secret(&mut self, name: &str, key: &str, value: &str) {
        self.data.secrets.entry(name.into()).or_default().insert(key.into(), secret_value(value.as_bytes()));
    }

    pub(crate) fn config_map(&mut self, name: &str, key: &str, value: &str) {
        self.data.config_maps.entry(name.into()).or_default().insert(key.into(), secret_value(value.as_bytes()));
    }

    /// A ConfigMap whose text is read.
    pub(crate) fn text(&mut self, name: &str, key: &str, text: &str) {
        let entry = Entry::of_text(text.as_bytes(), &DigestKey::new(b"the key of tests"));
        self.data.config_maps.entry(name.into()).or_default().insert(key.into(), entry);
    }

    pub(crate) fn plan(&self) -> Plan<W> {
        let pods: Vec<&Pod> = self.pods.iter().collect();
        let containers: Vec<_> = self.pods.iter().map(|pod| pod.spec.as_ref().and_then(ProxyContainer::of)).collect();
        let names = self.pods.iter().filter_map(|pod| pod.metadata.name.as_deref());
        let containers = names.zip(&containers).filter_map(|(name, found)| Some((name, found.as_ref()?))).collect();
        let plan = plan_workload(&Inputs {
            workload: &self.workload,
            configs: &self.configs,
            unseen: self.unseen,
            data: &self.data,
            unreadable: self.unreadable.as_deref(),
            denied: self.denied.as_deref(),
            deployment: self.deployment.as_ref(),
            children: &self.children,
            opened: &self.opened,
            pods: &pods,
            containers: &containers,
            backend_pods: &self.backend_pods.iter().collect::<Vec<_>>(),
            reach: self.reach.as_ref(),
            settings: &self.settings,
            now: self.now,
        });
        let conditions = plan.report.conditions.clone().unwrap_or_default();
        let status = W::status_of(plan.report);
        let (events, again) = (plan.events, plan.again);
        Plan { children: plan.children, absent: plan.absent, conditions, status, events, again }
    }

    /// Lets the cluster have what was planned, as far as plans look at it.
    pub(crate) fn applied(&mut self, plan: &Plan<W>) {
        for absent in &plan.absent {
            self.children.remove(absent);
            if absent.kind == ChildKind::Deployment {
                self.deployment = None;
            }
        }
        for child in &plan.children {
            self.children.insert(child.reference.clone());
            if child.reference.kind == ChildKind::Deployment {
                self.deployment = serde_json::from_value(child.object.clone()).unwrap();
            }
        }
        *self.workload.status_mut() = Some(W::Status::clone(&plan.status));
    }
}

/// What is known of this value.
pub(crate) fn secret_value(value: &[u8]) -> Entry {
    Entry::of(value, &DigestKey::new(b"the key of tests"))
}

pub(crate) fn config(name: &str, spec: Value) -> MCPWebhookConfig {
    serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig",
        "metadata": {"name": name, "namespace": "team", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn oidc_config(name: &str, spec: Value) -> MCPOIDCConfig {
    serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPOIDCConfig",
        "metadata": {"name": name, "namespace": "team", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

/// The spec of a provider, changed.
pub(crate) fn inline(change: Value) -> Value {
    let mut inline = json!({"issuer": "https://idp.example.com"});
    inline.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!({"type": "inline", "inline": inline})
}

pub(crate) fn telemetry_config(name: &str, spec: Value) -> MCPTelemetryConfig {
    serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPTelemetryConfig",
        "metadata": {"name": name, "namespace": "team", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn authz_config(name: &str, spec: Value) -> MCPAuthzConfig {
    serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPAuthzConfig",
        "metadata": {"name": name, "namespace": "team", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn tool_config(name: &str, spec: Value) -> MCPToolConfig {
    serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig",
        "metadata": {"name": name, "namespace": "team", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn external_auth_config(name: &str, spec: Value) -> MCPExternalAuthConfig {
    serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPExternalAuthConfig",
        "metadata": {"name": name, "namespace": "team", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

/// The document of a planned child.
pub(crate) fn child<'a, W: HasStatus>(plan: &'a Plan<W>, kind: ChildKind, name: &str) -> Option<&'a Value> {
    plan.children.iter().find(|child| child.reference == ChildRef::new(kind, name)).map(|child| &child.object)
}

pub(crate) fn deployment<W: HasStatus>(plan: &Plan<W>) -> &Value {
    child(plan, ChildKind::Deployment, "fetch").expect("the proxy is planned")
}

pub(crate) fn stateful_set<W: HasStatus>(plan: &Plan<W>) -> &Value {
    child(plan, ChildKind::StatefulSet, "fetch").expect("the workload is planned")
}

pub(crate) fn run_config<W: HasStatus>(plan: &Plan<W>) -> &str {
    child(plan, ChildKind::ConfigMap, "fetch-runconfig").expect("the RunConfig is planned")["data"]["runconfig.json"]
        .as_str()
        .unwrap()
}

/// The checksum on the proxy's pod template.
pub(crate) fn checksum<W: HasStatus>(plan: &Plan<W>) -> &str {
    deployment(plan)["spec"]["template"]["metadata"]["annotations"]["toolhive.stacklok.dev/runconfig-checksum"]
        .as_str()
        .expect("the checksum is there")
}

/// The guards on the proxy's pod template; null where there are none.
pub(crate) fn guards<W: HasStatus>(plan: &Plan<W>) -> &Value {
    &deployment(plan)["spec"]["template"]["metadata"]["annotations"]["toolhive.stacklok.dev/guards"]
}

/// Reason and message of a condition with this status.
pub(crate) fn condition<W: HasStatus>(plan: &Plan<W>, type_: &str, status: &str) -> Option<(String, String)> {
    let found = plan.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)?;
    Some((found.reason.clone(), found.message.clone()))
}

pub(crate) fn is_absent<W: HasStatus>(plan: &Plan<W>, kind: ChildKind, name: &str) -> bool {
    plan.absent.contains(&ChildRef::new(kind, name))
}

/// A pod of the proxy in this state.
pub(crate) fn pod(phase: &str, ready: bool, waiting: Option<&str>) -> Pod {
    let state = waiting.map(|reason| json!({"waiting": {"reason": reason}}));
    serde_json::from_value(json!({
        "metadata": {"name": "fetch-1", "namespace": "team", "labels": {"pod-template-hash": "5b8c"}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "fetch-5b8c", "uid": "r", "controller": true},
        ]},
        "status": {"phase": phase, "containerStatuses": [
            {"name": "toolhive", "ready": ready, "image": "", "imageID": "", "restartCount": 0, "state": state},
        ]},
    }))
    .unwrap()
}

/// The pod of the MCP server, whose container has these members in its status.
pub(crate) fn backend_pod(phase: &str, members: Value) -> Pod {
    let mut container = json!({"name": "mcp", "ready": false, "image": "x:1", "imageID": "", "restartCount": 0});
    container.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": "fetch-0", "namespace": "team", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "fetch", "uid": "s", "controller": true},
        ]},
        "status": {"phase": phase, "containerStatuses": [container]},
    }))
    .unwrap()
}
