//! The MCP server itself: its StatefulSet and the Services that reach it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec},
        core::v1::{
            ClientIPConfig, Container, ContainerPort, HostPathVolumeSource, PodSpec, PodTemplateSpec, Service,
            ServicePort, ServiceSpec, SessionAffinityConfig, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use mcp_api::{names::label, v1beta1::Transport};

use super::{
    Child, ChildKind, access, digest, environment,
    metadata::Server,
    names, pod_template,
    proxy::{container_security, pod_security},
    runconfig::workload_labels,
};

/// How long a client stays with its pod, in seconds.
const AFFINITY_SECONDS: i32 = 1800;

/// The StatefulSet that runs the MCP server, shaped by the user's template.
pub(super) fn stateful_set(
    server: &Server<'_>,
    user: Option<PodTemplateSpec>,
    secrets: &BTreeMap<String, BTreeMap<String, String>>,
) -> Child {
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels(server)),
            annotations: secrets_checksum(server, secrets)
                .map(|checksum| [(names::SECRETS_CHECKSUM.to_owned(), checksum)].into()),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(server)),
    };
    if let Some(user) = user {
        pod_template::merge(&mut template, user);
    }
    if let Some(account) = access::own_account(server)
        && let Some(spec) = &mut template.spec
    {
        spec.service_account_name = Some(account.to_owned());
    }
    let selector = [(label::APP.to_owned(), server.name.to_owned())].into();
    let spec = StatefulSetSpec {
        replicas: server.spec.backend_replicas,
        selector: LabelSelector { match_labels: Some(selector), ..LabelSelector::default() },
        service_name: Some(server.name.to_owned()),
        template,
        ..StatefulSetSpec::default()
    };
    let metadata = server.metadata(server.name, labels(server));
    let stateful_set = StatefulSet { metadata, spec: Some(spec), ..StatefulSet::default() };
    Child::new(ChildKind::StatefulSet, server.name, &stateful_set)
}

/// The Services of an MCP server that is reached over the network; a stdio server has none.
pub(super) fn services(server: &Server<'_>) -> Vec<Child> {
    if server.spec.transport == Transport::Stdio {
        return Vec::new();
    }
    let affinity =
        SessionAffinityConfig { client_ip: Some(ClientIPConfig { timeout_seconds: Some(AFFINITY_SECONDS) }) };
    let backend = ServiceSpec {
        session_affinity: Some("ClientIP".to_owned()),
        session_affinity_config: Some(affinity),
        ..service_spec(server)
    };
    let headless = ServiceSpec { cluster_ip: Some("None".to_owned()), ..service_spec(server) };
    let service = |name: &str, spec| {
        let metadata = server.metadata(name, labels(server));
        Child::new(ChildKind::Service, name, &Service { metadata, spec: Some(spec), ..Service::default() })
    };
    vec![
        service(&names::headless_service(server.name), headless),
        service(&names::backend_service(server.name), backend),
    ]
}

fn service_spec(server: &Server<'_>) -> ServiceSpec {
    let port = environment::mcp_port(server);
    // `app` alone would also select every proxy when the server is called `mcpserver`.
    let selector = [label::APP, "toolhive-basename"].map(|key| (key.to_owned(), server.name.to_owned()));
    ServiceSpec {
        selector: Some(selector.into()),
        ports: Some(vec![ServicePort {
            name: Some(format!("port-{port}")),
            port,
            target_port: Some(IntOrString::Int(port)),
            protocol: Some("TCP".to_owned()),
            ..ServicePort::default()
        }]),
        ..ServiceSpec::default()
    }
}

fn pod(server: &Server<'_>) -> PodSpec {
    let stdio = server.spec.transport == Transport::Stdio;
    let (volumes, mounts): (Vec<_>, Vec<_>) = volumes(server).unzip();
    let container = Container {
        name: "mcp".to_owned(),
        image: Some(server.spec.image.clone()),
        args: server.spec.args.clone().filter(|args| !args.is_empty()),
        env: Some(environment::backend(server)),
        stdin: if stdio { Some(true) } else { None },
        ports: if server.spec.transport == Transport::Sse {
            Some(vec![ContainerPort {
                container_port: environment::mcp_port(server),
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            }])
        } else {
            None
        },
        volume_mounts: if mounts.is_empty() { None } else { Some(mounts) },
        security_context: Some(container_security()),
        ..Container::default()
    };
    PodSpec {
        containers: vec![container],
        volumes: if volumes.is_empty() { None } else { Some(volumes) },
        service_account_name: Some(names::workload_account(server.name)),
        security_context: Some(pod_security()),
        ..PodSpec::default()
    }
}

fn volumes(server: &Server<'_>) -> impl Iterator<Item = (Volume, VolumeMount)> {
    server.spec.volumes.as_deref().unwrap_or_default().iter().map(|volume| {
        let source = HostPathVolumeSource { path: volume.host_path.clone(), type_: None };
        let mount = VolumeMount {
            name: volume.name.clone(),
            mount_path: volume.mount_path.clone(),
            read_only: if volume.read_only { Some(true) } else { None },
            ..VolumeMount::default()
        };
        (Volume { name: volume.name.clone(), host_path: Some(source), ..Volume::default() }, mount)
    })
}

fn labels(server: &Server<'_>) -> BTreeMap<String, String> {
    let mut labels = workload_labels(server);
    labels.insert(label::APP.to_owned(), server.name.to_owned());
    labels
}

/// What reaches the server as environment reaches it only in a new pod: a changed value rolls the pods.
fn secrets_checksum(server: &Server<'_>, secrets: &BTreeMap<String, BTreeMap<String, String>>) -> Option<String> {
    let wanted = server.spec.secrets.as_deref().filter(|wanted| !wanted.is_empty())?;
    let mut lines: Vec<String> = wanted
        .iter()
        .map(|secret| {
            let value = secrets.get(&secret.name).and_then(|keys| keys.get(&secret.key));
            format!("{}/{}={}\n", secret.name, secret.key, value.map_or("", String::as_str))
        })
        .collect();
    lines.sort();
    Some(digest(lines.concat().as_bytes()))
}
