//! The proxy in front of a workload: its Deployment and the Service clients connect to.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy},
        core::v1::{
            Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
            LocalObjectReference, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
            ResourceRequirements, SeccompProfile, SecurityContext, Service, ServicePort, ServiceSpec, Volume,
            VolumeMount,
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
    v1beta1::{MetadataOverrides, ProxyDeploymentOverrides, ResourceList, ResourceOverrides},
};
use mcp_runconfig::{chain, endpoint::Egress, environment};

use super::{
    child::{Child, ChildKind},
    document::Document,
    names,
    owner::{Owner, merged, some},
    proxy_template,
};
use crate::{
    config::Uses,
    image,
    reference::{Data, MountedFile, SecretVariable},
    settings::Settings,
};

/// Name of the port that the probes and the Service use.
const PORT_NAME: &str = "http";

/// Begins the annotations that Kubernetes itself writes on Deployments.
const KUBERNETES: &str = "deployment.kubernetes.io/";

/// A proxy as its workload wants it.
#[derive(Clone, Debug)]
pub struct Proxy<'a> {
    /// The workload.
    pub owner: &'a Owner<'a>,
    /// Its kind in lower case: the label `app`.
    pub app: &'static str,
    /// Image of the proxy.
    pub image: &'a str,
    /// Arguments of its process.
    pub args: Vec<String>,
    /// Environment of its process.
    pub env: Vec<EnvVar>,
    /// The port that it listens on.
    pub port: i32,
    /// The number of pods; none leaves the number to an autoscaler, or 1.
    pub replicas: Option<i32>,
    /// The word of `sessionAffinity`.
    pub session_affinity: &'static str,
    /// CPU and memory of its container.
    pub resources: Option<ResourceRequirements>,
    /// ServiceAccount of its pods.
    pub account: String,
    /// The file with the root certificates that it trusts in place of those of its image.
    pub ca_bundle: Option<MountedFile>,
    /// Whether it speaks to the Kubernetes API. One that does not, and uses no configuration for which it does, carries
    /// no token for it.
    pub needs_api: bool,
    /// Whether no pod of it may run beside another, not even while it rolls.
    pub is_alone: bool,
    /// Secrets that its image is pulled with.
    pub pull_secrets: Option<Vec<LocalObjectReference>>,
    /// Key and value of a template annotation whose change restarts the pods.
    pub restart: Option<(&'static str, String)>,
    /// Values of Secrets in its environment, beside those that configurations bring. A changed one rolls the pods.
    pub secrets: Vec<SecretVariable>,
    /// The path at which the pod is asked whether it is ready.
    pub readiness_path: &'static str,
    /// The time after its start when the pod is asked for the first time whether it is ready, in seconds; none for the
    /// end of its startup probe.
    pub readiness_delay: Option<i32>,
    /// The additions of users.
    pub overrides: Option<&'a ResourceOverrides>,
    /// The additions of users to its pods.
    pub template: Option<PodTemplateSpec>,
}

impl Proxy<'_> {
    /// The Deployment of a proxy started with this document, with these configurations.
    pub fn deployment(&self, uses: &Uses, data: &Data, document: &Document) -> Child {
        let name = self.owner.name;
        let overrides = self.deployment_overrides();
        let labels = names::proxy_labels(self.app, name);

        let of_user = |annotations: Option<&BTreeMap<String, String>>| {
            // Written by a user, these would tell a later plan of guards that the pods do not have, or would be written
            // over by Kubernetes without end.
            let mut kept = annotations.cloned().unwrap_or_default();
            kept.retain(|key, _| !annotation::TELL_GUARDS.contains(&key.as_str()) && !key.starts_with(KUBERNETES));
            kept
        };
        let deployment = overrides.and_then(|it| it.annotations.as_ref());
        let mut metadata =
            self.owner.metadata(name, merged(labels.clone(), overrides.and_then(|it| it.labels.as_ref())));
        metadata.annotations = some(merged(uses.annotations(), Some(&of_user(deployment))));

        let pods = overrides.and_then(|it| it.pod_template_metadata_overrides.as_ref());
        let mut pod_labels = pods.and_then(|pods| pods.labels.clone()).unwrap_or_default();
        names::remove_selector_labels(&mut pod_labels);
        let mut template = PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: some(merged(labels.clone(), Some(&pod_labels))),
                annotations: some(merged(
                    self.template_annotations(uses, data, document),
                    Some(&of_user(pods.and_then(|pods| pods.annotations.as_ref()))),
                )),
                ..ObjectMeta::default()
            }),
            spec: Some(self.pod(uses)),
        };
        if let Some(user) = &self.template {
            proxy_template::merge(&mut template, user);
        }
        let spec = DeploymentSpec {
            replicas: self.replicas,
            selector: LabelSelector { match_labels: Some(labels), ..LabelSelector::default() },
            strategy: self
                .is_alone
                .then(|| DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None }),
            template,
            ..DeploymentSpec::default()
        };
        let deployment = Deployment { metadata, spec: Some(spec), ..Deployment::default() };
        Child::new(ChildKind::Deployment, name, &deployment)
    }

    /// The Service clients connect to.
    pub fn service(&self, name: &str) -> Child {
        let overrides: Option<&MetadataOverrides> = self.overrides.and_then(|all| all.proxy_service.as_ref());
        let labels = names::proxy_labels(self.app, self.owner.name);
        let mut metadata =
            self.owner.metadata(name, merged(labels.clone(), overrides.and_then(|it| it.labels.as_ref())));
        metadata.annotations = some(overrides.and_then(|it| it.annotations.clone()).unwrap_or_default());
        let spec = ServiceSpec {
            selector: Some(labels),
            session_affinity: Some(self.session_affinity.to_owned()),
            ports: Some(vec![ServicePort {
                name: Some(PORT_NAME.to_owned()),
                port: self.port,
                target_port: Some(IntOrString::Int(self.port)),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        };
        Child::new(ChildKind::Service, name, &Service { metadata, spec: Some(spec), ..Service::default() })
    }

    fn deployment_overrides(&self) -> Option<&ProxyDeploymentOverrides> {
        self.overrides?.proxy_deployment.as_ref()
    }

    fn secret_variables<'a>(&'a self, uses: &'a Uses) -> Vec<&'a SecretVariable> {
        uses.secrets().into_iter().chain(&self.secrets).collect()
    }

    /// Its variables, and those that configurations and Secrets bring, which no user's variable replaces.
    fn environment(&self, uses: &Uses) -> Vec<EnvVar> {
        let mut brought: Vec<EnvVar> = uses.variables().into_iter().cloned().collect();
        brought.extend(self.secret_variables(uses).into_iter().map(SecretVariable::variable));
        let own = self.env.iter().filter(|own| brought.iter().all(|it| it.name != own.name));
        let mut all: Vec<EnvVar> = own.cloned().collect();
        all.append(&mut brought);
        all
    }

    fn template_annotations(&self, uses: &Uses, data: &Data, document: &Document) -> BTreeMap<String, String> {
        let checksum = (annotation::RUN_CONFIG_CHECKSUM.to_owned(), document.checksum.clone());
        let restart = self.restart.clone().map(|(key, value)| (key.to_owned(), value));
        let variables = self.secret_variables(uses);
        let secrets = data.checksum(variables.iter().map(|it| (&*it.secret, &*it.key)));
        let secrets = secrets.map(|checksum| (annotation::SECRETS_CHECKSUM.to_owned(), checksum));
        let guards = uses.digest().map(|digest| (annotation::GUARDS.to_owned(), digest));
        [Some(checksum), restart, secrets, guards].into_iter().flatten().collect()
    }

    fn pod(&self, uses: &Uses) -> PodSpec {
        let (volumes, mounts) = self.volumes(uses).into_iter().unzip();
        let container = Container {
            name: proxy_template::CONTAINER.to_owned(),
            image: Some(self.image.to_owned()),
            command: image::program(self.image).map(|program| vec![program.to_owned()]),
            args: Some(self.args.clone()),
            env: Some(with_checksum(self.environment(uses))),
            ports: Some(vec![ContainerPort {
                name: Some(PORT_NAME.to_owned()),
                container_port: self.port,
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            }]),
            volume_mounts: Some(mounts),
            resources: self.resources.clone(),
            startup_probe: Some(probe("/health", None, 5, 3, 18)),
            liveness_probe: Some(probe("/health", Some(30), 10, 5, 3)),
            readiness_probe: Some(probe(self.readiness_path, self.readiness_delay, 5, 3, 3)),
            security_context: Some(container_security()),
            // The default. Sent, it is ours: who changes it is noticed.
            termination_message_path: Some("/dev/termination-log".to_owned()),
            ..Container::default()
        };
        let overrides = self.deployment_overrides();
        PodSpec {
            containers: vec![container],
            volumes: Some(volumes),
            service_account_name: Some(self.account.clone()),
            automount_service_account_token: match (uses.need_account(), self.needs_api) {
                // Said here it counts, whatever the ServiceAccount says.
                (true, _) => Some(true),
                (false, true) => None,
                (false, false) => Some(false),
            },
            // A Service called `kubernetes` would set the variable by which the proxy knows the address of the
            // Kubernetes API.
            enable_service_links: Some(false),
            // The default, for the same reason as the path of the termination message.
            dns_policy: Some("ClusterFirst".to_owned()),
            image_pull_secrets: self.pull_secrets.clone(),
            security_context: Some(pod_security()),
            termination_grace_period_seconds: Some(30),
            affinity: overrides.and_then(|it| it.affinity.clone()),
            node_selector: overrides.and_then(|it| it.node_selector.clone()).and_then(some),
            tolerations: overrides.and_then(|it| it.tolerations.clone()).filter(|all| !all.is_empty()),
            ..PodSpec::default()
        }
    }

    /// The files of the proxy, all mounted as directories, so that changes reach a running pod.
    fn volumes(&self, uses: &Uses) -> Vec<(Volume, VolumeMount)> {
        let run_config =
            ConfigMapVolumeSource { name: names::run_config(self.owner.name), ..ConfigMapVolumeSource::default() };
        let volume = Volume { name: "runconfig".to_owned(), config_map: Some(run_config), ..Volume::default() };
        let mount = VolumeMount {
            name: volume.name.clone(),
            mount_path: "/etc/runconfig".to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        };
        let mut all = vec![(volume, mount)];
        all.extend(uses.files().into_iter().chain(&self.ca_bundle).map(MountedFile::mount));
        all
    }
}

/// Variables, and the checksum of the document that the pod was made for. The document is one ConfigMap for all pods: a
/// container that starts anew in an old pod must not run on a newer one, under the name of the guards of the old one.
fn with_checksum(mut env: Vec<EnvVar>) -> Vec<EnvVar> {
    let field_path = format!("metadata.annotations['{}']", annotation::RUN_CONFIG_CHECKSUM);
    let field_ref = Some(ObjectFieldSelector { field_path, ..ObjectFieldSelector::default() });
    env.retain(|var| var.name != environment::RUN_CONFIG_CHECKSUM);
    env.push(EnvVar {
        name: environment::RUN_CONFIG_CHECKSUM.to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref, ..EnvVarSource::default() }),
    });
    env
}

/// The arguments of a proxy's process: its own, and what the operator was told of all of them: the networks that they
/// may call, the proxy through which they do, and the root certificates that they trust.
pub fn arguments(mut own: Vec<String>, settings: &Settings) -> Vec<String> {
    let networks: Vec<String> = settings.exempt_endpoints.iter().map(ToString::to_string).collect();
    if !networks.is_empty() {
        own.push(format!("--allow-endpoint-cidr={}", networks.join(",")));
    }
    if let Some(Egress { proxy, direct }) = &settings.egress {
        own.extend([format!("--egress-proxy={proxy}"), format!("--no-proxy={direct}")]);
    }
    own.extend(settings.ca_bundle.iter().map(|bundle| format!("--ca-bundle={}", bundle.file().path())));
    own
}

/// The operator's variables, then the user's but for those that the operator alone sets, then those that the runner
/// needs and both leave out. For a name that comes twice, the first counts.
pub fn run_environment(operators: Vec<EnvVar>, overrides: Option<&ResourceOverrides>) -> Vec<EnvVar> {
    let users = overrides.and_then(|all| all.proxy_deployment.as_ref()?.env.as_deref()).unwrap_or_default();
    let mut all = operators;
    for user in users.iter().filter(|var| !environment::is_operators(&var.name)) {
        if !all.iter().any(|var| var.name == user.name) {
            all.push(variable(&user.name, &user.value));
        }
    }
    let needed = [
        ("XDG_CONFIG_HOME", "/tmp"),
        ("HOME", environment::POD_HOME),
        (environment::RUNTIME, "kubernetes"),
        ("UNSTRUCTURED_LOGS", "false"),
    ];
    for (name, value) in needed {
        if !all.iter().any(|var| var.name == name) {
            all.push(variable(name, value));
        }
    }
    all
}

/// A variable. An empty value is left out: the API server drops it, and it would look like somebody's change.
pub fn variable(name: &str, value: &str) -> EnvVar {
    let value = if value.is_empty() { None } else { Some(value.to_owned()) };
    EnvVar { name: name.to_owned(), value, value_from: None }
}

/// The resource requests of a container, absent where there are none.
pub fn resources(limits: Option<&ResourceList>, requests: Option<&ResourceList>) -> Option<ResourceRequirements> {
    let amounts = |list: Option<&ResourceList>| {
        let list = list.cloned().unwrap_or_default();
        let amounts: BTreeMap<_, _> = [("cpu", list.cpu), ("memory", list.memory)]
            .into_iter()
            .filter_map(|(name, amount)| Some((name.to_owned(), Quantity(amount?))))
            .collect();
        if amounts.is_empty() { None } else { Some(amounts) }
    };
    let (limits, requests) = (amounts(limits), amounts(requests));
    if limits.is_none() && requests.is_none() {
        return None;
    }
    Some(ResourceRequirements { limits, requests, ..ResourceRequirements::default() })
}

/// The path at which proxies are asked whether they are ready. Other runners than ours may pass `/readyz` on to the
/// server.
pub fn readiness_path(settings: &Settings) -> &'static str {
    if settings.can_run(&[chain::READYZ]) { "/readyz" } else { "/health" }
}

/// Security of every pod made here: no root, no privileges.
pub fn pod_security() -> PodSecurityContext {
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
pub fn container_security() -> SecurityContext {
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

fn probe(path: &str, delay: Option<i32>, period: i32, timeout: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
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
