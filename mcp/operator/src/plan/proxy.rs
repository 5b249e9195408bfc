//! The proxy: its Deployment and the Service clients connect to.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Capabilities, ConfigMapVolumeSource, Container, ContainerPort, HTTPGetAction, PodSecurityContext, PodSpec,
            PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext, Service, ServicePort,
            ServiceSpec, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use mcp_api::{
    names::annotation,
    v1beta1::{PermissionProfileType, ResourceList, Transport},
};

use super::{
    Child, ChildKind, access, environment,
    gate::Gate,
    metadata::{Server, merged, some},
    names,
    runconfig::PROFILES,
};

/// Name of the port that the probes and the Service use.
const PORT_NAME: &str = "http";

/// How many proxies run: a stdio server is one process, which one proxy holds.
pub(super) fn replicas(server: &Server<'_>) -> Option<i32> {
    server
        .spec
        .replicas
        .map(|replicas| if server.spec.transport == Transport::Stdio { replicas.min(1) } else { replicas })
}

/// The Deployment of a proxy started with the RunConfig of this checksum.
pub(super) fn deployment(server: &Server<'_>, gate: &Gate, checksum: &str) -> Child {
    let overrides = server.spec.resource_overrides.as_ref().and_then(|all| all.proxy_deployment.clone());
    let overrides = overrides.unwrap_or_default();
    let pods = overrides.pod_template_metadata_overrides.unwrap_or_default();
    let labels = names::proxy_labels(server.name);

    let mut metadata = server.metadata(server.name, merged(labels.clone(), overrides.labels.as_ref()));
    let gate_annotation = match gate {
        Gate::Ready(gate) => [(names::GATE.to_owned(), gate.annotation())].into(),
        Gate::Open | Gate::Broken(_) => BTreeMap::new(),
    };
    let mut annotations = overrides.annotations.unwrap_or_default();
    // Written by a user, it would tell a later plan of a guard that these pods do not have.
    annotations.remove(names::GATE);
    metadata.annotations = some(merged(gate_annotation, Some(&annotations)));

    let checksum = [(annotation::RUN_CONFIG_CHECKSUM.to_owned(), checksum.to_owned())].into();
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: some(merged(labels.clone(), pods.labels.as_ref())),
            annotations: some(merged(checksum, pods.annotations.as_ref())),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(server, gate)),
    };
    let spec = DeploymentSpec {
        replicas: replicas(server),
        selector: LabelSelector { match_labels: Some(labels), ..LabelSelector::default() },
        template,
        ..DeploymentSpec::default()
    };
    let deployment = Deployment { metadata, spec: Some(spec), ..Deployment::default() };
    Child::new(ChildKind::Deployment, server.name, &deployment)
}

/// The Service clients connect to.
pub(super) fn service(server: &Server<'_>) -> Child {
    let overrides = server.spec.resource_overrides.as_ref().and_then(|all| all.proxy_service.clone());
    let overrides = overrides.unwrap_or_default();
    let name = names::proxy_service(server.name);
    let labels = names::proxy_labels(server.name);
    let mut metadata = server.metadata(&name, merged(labels.clone(), overrides.labels.as_ref()));
    metadata.annotations = some(overrides.annotations.unwrap_or_default());
    let port = server.spec.proxy_port;
    let spec = ServiceSpec {
        selector: Some(labels),
        session_affinity: Some(server.spec.session_affinity.as_str().to_owned()),
        ports: Some(vec![ServicePort {
            name: Some(PORT_NAME.to_owned()),
            port,
            target_port: Some(IntOrString::Int(port)),
            protocol: Some("TCP".to_owned()),
            ..ServicePort::default()
        }]),
        ..ServiceSpec::default()
    };
    Child::new(ChildKind::Service, &name, &Service { metadata, spec: Some(spec), ..Service::default() })
}

/// Security of every pod made here: no root, no privileges.
pub(super) fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(1000),
        run_as_group: Some(1000),
        fs_group: Some(1000),
        seccomp_profile: Some(runtime_default()),
        ..PodSecurityContext::default()
    }
}

/// Security of every container made here: a read-only root file system and no capabilities.
pub(super) fn container_security() -> SecurityContext {
    SecurityContext {
        privileged: Some(false),
        run_as_non_root: Some(true),
        run_as_user: Some(1000),
        run_as_group: Some(1000),
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        seccomp_profile: Some(runtime_default()),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    }
}

fn pod(server: &Server<'_>, gate: &Gate) -> PodSpec {
    let (volumes, mounts) = volumes(server, gate).into_iter().unzip();
    let container = Container {
        name: "toolhive".to_owned(),
        image: Some(server.settings.runner_image.clone()),
        args: Some(vec!["run".to_owned(), server.spec.image.clone()]),
        env: Some(environment::proxy(server)),
        ports: Some(vec![ContainerPort {
            name: Some(PORT_NAME.to_owned()),
            container_port: server.spec.proxy_port,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        volume_mounts: Some(mounts),
        resources: resources(server),
        startup_probe: Some(probe(None, 5, 3, 18)),
        liveness_probe: Some(probe(Some(30), 10, 5, 3)),
        readiness_probe: Some(probe(Some(5), 5, 3, 3)),
        security_context: Some(container_security()),
        ..Container::default()
    };
    PodSpec {
        containers: vec![container],
        volumes: Some(volumes),
        service_account_name: Some(names::proxy_account(server.name)),
        // A proxy that asks the API nothing carries no token for it.
        automount_service_account_token: if access::needs_api(server) { None } else { Some(false) },
        image_pull_secrets: access::pull_secrets(server),
        security_context: Some(pod_security()),
        termination_grace_period_seconds: Some(30),
        ..PodSpec::default()
    }
}

/// What the proxy reads as files; all of it mounted as directories, so that changes reach a running pod.
fn volumes(server: &Server<'_>, gate: &Gate) -> Vec<(Volume, VolumeMount)> {
    let config_map = |volume: &str, config_map: &str, path: &str| {
        let source = ConfigMapVolumeSource { name: config_map.to_owned(), ..ConfigMapVolumeSource::default() };
        let volume = Volume { name: volume.to_owned(), config_map: Some(source), ..Volume::default() };
        let mount = VolumeMount {
            name: volume.name.clone(),
            mount_path: path.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        };
        (volume, mount)
    };
    let mut all = vec![config_map("runconfig", &names::run_config(server.name), "/etc/runconfig")];
    if let Some(profile) = &server.spec.permission_profile
        && profile.kind == PermissionProfileType::ConfigMap
    {
        all.push(config_map("permission-profile", &profile.name, PROFILES));
    }
    if let Gate::Ready(gate) = gate {
        all.extend(gate.files.values().map(super::gate::SecretFile::volume));
    }
    all
}

fn resources(server: &Server<'_>) -> Option<ResourceRequirements> {
    let amounts = |list: Option<&ResourceList>| {
        let list = list.cloned().unwrap_or_default();
        let amounts: BTreeMap<_, _> = [("cpu", list.cpu), ("memory", list.memory)]
            .into_iter()
            .filter_map(|(name, amount)| Some((name.to_owned(), Quantity(amount?))))
            .collect();
        if amounts.is_empty() { None } else { Some(amounts) }
    };
    let wanted = server.spec.resources.as_ref()?;
    let (limits, requests) = (amounts(wanted.limits.as_ref()), amounts(wanted.requests.as_ref()));
    if limits.is_none() && requests.is_none() {
        return None;
    }
    Some(ResourceRequirements { limits, requests, ..ResourceRequirements::default() })
}

fn probe(delay: Option<i32>, period: i32, timeout: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/health".to_owned()),
            port: IntOrString::String(PORT_NAME.to_owned()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: delay,
        period_seconds: Some(period),
        timeout_seconds: Some(timeout),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn runtime_default() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }
}
