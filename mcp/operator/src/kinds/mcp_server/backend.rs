//! The MCP server itself: its StatefulSet and the Services that reach it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec},
        core::v1::{
            ClientIPConfig, Container, ContainerPort, HostPathVolumeSource, LocalObjectReference, PodSpec,
            PodTemplateSpec, Service, ServicePort, ServiceSpec, SessionAffinityConfig, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use mcp_api::{
    names::{annotation, label},
    v1beta1::{MCPServerSpec, Transport},
};
use mcp_plan::{
    problem::Problem,
    reference::Data,
    workload::{
        Child, ChildKind, Owner, Ways, names as shared, network,
        pod_template::{self, Template},
        proxy::{container_security, pod_security},
        workload_labels,
    },
};
use serde_json::json;

use super::{environment, names};

/// The container of the MCP server in its pods.
pub(super) const CONTAINER: &str = "mcp";

/// The session affinity timeout, in seconds.
const AFFINITY_SECONDS: i32 = 1800;

/// The MCP server as its spec wants it.
pub(super) struct Backend<'a> {
    pub(super) owner: &'a Owner<'a>,
    pub(super) spec: &'a MCPServerSpec,
    template: PodTemplateSpec,
}

impl<'a> Backend<'a> {
    /// The MCP server with the pods that follow from its spec, the user's template and the Secrets in its environment.
    /// A ServiceAccount that the user names may have pull secrets of its own, which the API server adds where a pod names none.
    pub(super) fn of(
        owner: &'a Owner<'a>,
        spec: &'a MCPServerSpec,
        data: &Data,
        pull_secrets: Option<Vec<LocalObjectReference>>,
    ) -> Self {
        let secrets = spec.secrets.iter().flatten().map(|secret| (&*secret.name, &*secret.key));
        let checksum = data.checksum(secrets);
        let mut template = PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(labels(owner, spec)),
                annotations: checksum.map(|checksum| [(annotation::SECRETS_CHECKSUM.to_owned(), checksum)].into()),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec {
                image_pull_secrets: pull_secrets.filter(|_| own_account(spec).is_none()),
                ..pod(owner, spec)
            }),
        };
        if let Some(Ok(user)) = pod_template(spec) {
            pod_template::merge(&mut template, user.known);
        }
        if let Some(ObjectMeta { annotations: Some(annotations), .. }) = &mut template.metadata {
            annotations.retain(|key, _| !annotation::TELL_GUARDS.contains(&&**key));
        }
        if let Some(account) = own_account(spec)
            && let Some(pod) = &mut template.spec
        {
            pod.service_account_name = Some(account.to_owned());
        }
        // The default: who holds the field in `managedFields` has asked for it.
        if let Some(pod) = &mut template.spec {
            pod.host_network = pod.host_network.filter(|wanted| *wanted);
        }
        Self { owner, spec, template }
    }

    /// The StatefulSet that runs it.
    pub(super) fn stateful_set(&self) -> Child {
        let selector = [(label::APP.to_owned(), self.owner.name.to_owned())].into();
        let spec = StatefulSetSpec {
            replicas: self.spec.backend_replicas,
            selector: LabelSelector { match_labels: Some(selector), ..LabelSelector::default() },
            service_name: Some(self.owner.name.to_owned()),
            template: self.template.clone(),
            ..StatefulSetSpec::default()
        };
        let metadata = self.owner.metadata(self.owner.name, labels(self.owner, self.spec));
        let stateful_set = StatefulSet { metadata, spec: Some(spec), ..StatefulSet::default() };
        Child::new(ChildKind::StatefulSet, self.owner.name, &stateful_set)
    }

    /// The NetworkPolicy of its pods: only its proxy may reach them, on its port.
    pub(super) fn network_policy(&self, app: &str) -> Child {
        let stdio = self.spec.transport == Transport::Stdio;
        let port = (!stdio).then(|| environment::mcp_port(self.spec));
        let proxy = shared::proxy_labels(app, self.owner.name);
        let name = names::network_policy(self.owner.name);
        network::policy(self.owner, &name, selector(self.owner), proxy, port, &self.template)
    }

    /// The Services of an MCP server that is reached over the network; a stdio server has none.
    pub(super) fn services(&self) -> Vec<Child> {
        if self.spec.transport == Transport::Stdio {
            return Vec::new();
        }
        let affinity =
            SessionAffinityConfig { client_ip: Some(ClientIPConfig { timeout_seconds: Some(AFFINITY_SECONDS) }) };
        let backend = ServiceSpec {
            session_affinity: Some("ClientIP".to_owned()),
            session_affinity_config: Some(affinity),
            ..self.service_spec()
        };
        let headless = ServiceSpec { cluster_ip: Some("None".to_owned()), ..self.service_spec() };
        let service = |name: &str, spec| {
            let metadata = self.owner.metadata(name, labels(self.owner, self.spec));
            Child::new(ChildKind::Service, name, &Service { metadata, spec: Some(spec), ..Service::default() })
        };
        vec![
            service(&names::headless_service(self.owner.name), headless),
            service(&names::backend_service(self.owner.name), backend),
        ]
    }

    fn service_spec(&self) -> ServiceSpec {
        let port = environment::mcp_port(self.spec);
        ServiceSpec {
            // The default. Sent, it is ours: nobody opens a port of the nodes to the server.
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector(self.owner)),
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
}

/// The user's own ServiceAccount for the MCP server, if one is named.
pub(super) fn own_account(spec: &MCPServerSpec) -> Option<&str> {
    spec.service_account.as_deref().filter(|name| !name.is_empty())
}

/// The user's template for its pods, read; none where there is none.
pub(super) fn pod_template(spec: &MCPServerSpec) -> Option<Result<Template, Problem>> {
    spec.pod_template_spec.as_ref().map(|template| pod_template::decode(template, CONTAINER))
}

/// The ways to its pods that its template opens.
pub(super) fn ways(spec: &MCPServerSpec) -> Ways {
    Ways::of_document(&json!({"spec": {"template": spec.pod_template_spec}}))
}

/// Selects its pods. `app` alone would also select every proxy when the server is called `mcpserver`.
fn selector(owner: &Owner<'_>) -> BTreeMap<String, String> {
    [label::APP, label::TOOLHIVE_BASENAME].map(|key| (key.to_owned(), owner.name.to_owned())).into()
}

fn pod(owner: &Owner<'_>, spec: &MCPServerSpec) -> PodSpec {
    let stdio = spec.transport == Transport::Stdio;
    let (volumes, mounts): (Vec<_>, Vec<_>) = volumes(spec).unzip();
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(spec.image.clone()),
        args: spec.args.clone().filter(|args| !args.is_empty()),
        env: Some(environment::backend(spec)),
        stdin: if stdio { Some(true) } else { None },
        // Each proxy meets a fresh process: the input ends with the attachment.
        stdin_once: if stdio { Some(true) } else { None },
        ports: if spec.transport == Transport::Sse {
            Some(vec![ContainerPort {
                container_port: environment::mcp_port(spec),
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
        service_account_name: Some(names::workload_account(owner.name)),
        // The template may turn it on: the names and addresses of all Services are not every server's to know.
        enable_service_links: Some(false),
        security_context: Some(pod_security()),
        ..PodSpec::default()
    }
}

fn volumes(spec: &MCPServerSpec) -> impl Iterator<Item = (Volume, VolumeMount)> {
    spec.volumes.as_deref().unwrap_or_default().iter().map(|volume| {
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

fn labels(owner: &Owner<'_>, spec: &MCPServerSpec) -> BTreeMap<String, String> {
    let mut labels = workload_labels(owner.name, spec.transport.as_str(), spec.proxy_port);
    labels.insert(label::APP.to_owned(), owner.name.to_owned());
    labels
}
