//! The gate has no side door: who may reach the pods behind a proxy (MISSION P6).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        core::v1::PodTemplateSpec,
        networking::v1::{
            NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
        },
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use super::{
    child::{Child, ChildKind},
    owner::Owner,
};

/// A policy under which the pods with the labels `guarded` are reached on `port` by the pods with the labels `proxy`
/// alone (by nobody where there is no port), and on the other ports that their own template declares by everybody.
///
/// A sidecar's metrics or a debugger's port is its author's to open; the port of the MCP server is the gate's.
pub fn policy(
    owner: &Owner<'_>,
    name: &str,
    guarded: BTreeMap<String, String>,
    proxy: BTreeMap<String, String>,
    port: Option<i32>,
    template: &PodTemplateSpec,
) -> Child {
    let selector = |labels| LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
    let open = |port: i32, protocol: &str| NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some(protocol.to_owned()),
        end_port: None,
    };
    let mut ingress = Vec::new();
    if let Some(port) = port {
        let proxies = NetworkPolicyPeer { pod_selector: Some(selector(proxy)), ..NetworkPolicyPeer::default() };
        ingress.push(NetworkPolicyIngressRule { from: Some(vec![proxies]), ports: Some(vec![open(port, "TCP")]) });
    }
    let declared = declared_ports(template);
    let others: Vec<_> =
        declared.iter().filter(|it| Some(it.0) != port).map(|(port, protocol)| open(*port, protocol)).collect();
    if !others.is_empty() {
        ingress.push(NetworkPolicyIngressRule { from: None, ports: Some(others) });
    }
    let policy = NetworkPolicy {
        metadata: owner.metadata(name, guarded.clone()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(guarded)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: if ingress.is_empty() { None } else { Some(ingress) },
            egress: None,
        }),
    };
    Child::new(ChildKind::NetworkPolicy, name, &policy)
}

fn declared_ports(template: &PodTemplateSpec) -> BTreeSet<(i32, String)> {
    let spec = template.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    // Sidecars may be init containers that go on running.
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let ports = containers.iter().chain(init).flat_map(|container| container.ports.as_deref().unwrap_or_default());
    ports.map(|port| (port.container_port, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()))).collect()
}
