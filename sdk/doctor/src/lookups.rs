//! Relations between the objects of a snapshot: the configurations, the Service, the pods and the Jobs of an installation.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use portcullis_manifest::{Installation, WebhookKind};

use super::configuration::{Configuration, Entry, conversion, selects};
use super::parts::View;
use super::snapshot::Place;

const INSTANCE: &str = "app.kubernetes.io/instance";

impl<'a> View<'a> {
    /// The namespace that is asked about: the one that was given, or the one that the installation is restricted to.
    pub(super) fn asked_namespace_name(self) -> Option<&'a str> {
        let restricted_to = self.subject.installation.restricted_to.as_deref();
        self.snapshot.options.in_namespace.as_deref().or(restricted_to)
    }

    /// The configuration of this installation and kind.
    pub(super) fn configuration(self, kind: WebhookKind) -> Option<&'a Configuration> {
        let name = self.subject.configuration(kind);
        self.configurations().iter().find(|one| one.kind == kind && one.name() == name)
    }

    /// The entries of this installation: those of its configurations under names of its webhooks, and the conversions of
    /// its CRDs. Each with its label in messages.
    pub(super) fn ours(self) -> Vec<(String, Entry)> {
        let kinds = [WebhookKind::Validating, WebhookKind::Mutating];
        let mut ours = Vec::new();
        for configuration in kinds.into_iter().filter_map(|kind| self.configuration(kind)) {
            let mine =
                |entry: &&Entry| self.subject.webhooks_of(configuration.kind).any(|mine| mine.name == entry.name);
            let entries = configuration.entries.iter().filter(mine);
            ours.extend(entries.map(|entry| (format!("{}/{}", configuration.name(), entry.name), entry.clone())));
        }
        ours.extend(self.conversions().map(|(crd, entry)| (format!("{crd}/conversion"), entry)));
        ours
    }

    /// The CRDs that are converted by a webhook, each with the entry for that.
    pub(super) fn conversions(self) -> impl Iterator<Item = (&'a str, Entry)> {
        let crd = move |name: &str| self.crds().iter().find(|crd| crd.name_any() == name);
        self.subject.conversions.iter().filter_map(move |(name, _)| Some((&**name, conversion(crd(name)?)?)))
    }

    /// Entries of any configuration that bear a name of ours or are called for updates of our kinds.
    pub(super) fn related(self) -> impl Iterator<Item = (&'a Configuration, &'a Entry)> {
        let entries = self.configurations().iter().flat_map(|one| one.entries.iter().map(move |entry| (one, entry)));
        entries.filter(move |(_, entry)| {
            self.subject.webhooks.iter().any(|webhook| webhook.name == entry.name)
                || self.subject.kinds.iter().any(|kind| entry.covers_updates_of(kind))
        })
    }

    /// Configurations of any installation of this operator: by the names of its webhooks. An installation is called
    /// through a Service.
    pub(super) fn family(self) -> impl Iterator<Item = &'a Configuration> {
        let named = move |entry: &Entry| self.subject.webhooks.iter().any(|mine| mine.name == entry.name);
        let ours = move |entry: &Entry| named(entry) && entry.service().is_some();
        self.configurations().iter().filter(move |one| one.entries.iter().any(ours))
    }

    /// The Service of this name, where it was looked up.
    pub(super) fn service_at(self, place: &Place) -> Option<&'a Option<Service>> {
        self.services().iter().find(|(at, _)| at == place).map(|(_, service)| service)
    }

    /// The Service of this installation.
    pub(super) fn service(self) -> Option<&'a Service> {
        self.service_at(&self.subject.place())?.as_ref()
    }

    /// The number of ready addresses behind a Service.
    pub(super) fn ready_endpoints(self, place: &Place) -> Option<usize> {
        self.endpoints().iter().find(|(at, _)| at == place).map(|(_, ready)| *ready)
    }

    /// Whether the webhooks are served from outside of the cluster: then there are no pods of it to look at.
    pub(super) fn is_external_name(self) -> bool {
        self.service().is_some_and(is_external_name)
    }

    /// The port of the pods that the Service calls.
    pub(super) fn target_port(self) -> Option<IntOrString> {
        let ports = self.service()?.spec.as_ref()?.ports.as_ref()?;
        let port = ports.iter().find(|port| port.port == i32::from(self.subject.installation.service.port))?;
        Some(port.target_port.clone().unwrap_or(IntOrString::Int(port.port)))
    }

    /// The Deployment of this installation: the one whose pods the Service selects, or the one that is named like it.
    pub(super) fn deployment(self) -> Option<&'a Deployment> {
        let deployments = self.deployments();
        let selected = deployments.iter().find(|deployment| {
            let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
            let labels = template.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
            self.selector().is_some_and(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
        });
        let installation = &self.subject.installation;
        let named = |deployment: &&Deployment| {
            deployment.name_any() == installation.release
                || deployment.labels().get(INSTANCE).is_some_and(|instance| *instance == installation.release)
        };
        selected.or_else(|| deployments.iter().find(named))
    }

    fn selector(self) -> Option<&'a BTreeMap<String, String>> {
        let selector = self.service()?.spec.as_ref()?.selector.as_ref()?;
        (!selector.is_empty()).then_some(selector)
    }

    /// The pods of this installation.
    pub(super) fn operator_pods(self) -> Vec<&'a Pod> {
        let of_deployment = self.deployment().and_then(|deployment| Some(&deployment.spec.as_ref()?.selector));
        let ours = |pod: &&Pod| match (of_deployment, self.selector()) {
            (Some(selector), _) => selects(Some(selector), pod.labels()),
            (None, Some(selector)) => selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value)),
            (None, None) => false,
        };
        self.pods().iter().filter(ours).collect()
    }

    /// Whether the operator runs under a ServiceAccount of this cluster.
    pub(super) fn has_account(self) -> bool {
        !self.is_external_name() || self.deployment().is_some()
    }

    /// Name of the ServiceAccount that the operator runs under.
    pub(super) fn account(self) -> String {
        let spec = self.deployment().and_then(|deployment| deployment.spec.as_ref()?.template.spec.as_ref());
        spec.and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_else(|| self.subject.installation.release.clone())
    }

    /// The Jobs that prepare this installation, by their label; of those without one, such as are called after it and are
    /// about certificates.
    pub(super) fn hooks(self) -> Vec<&'a Job> {
        let Installation { release, service, secret, .. } = &self.subject.installation;
        let called_after = |job: &Job, name: &str| {
            job.name_any().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let ours = |job: &&Job| match job.labels().get(INSTANCE) {
            Some(instance) => instance == release,
            None => {
                [release, &service.name, secret].into_iter().any(|name| called_after(job, name))
                    && (makes_certificates(job) || publishes(job))
            }
        };
        self.jobs().iter().filter(ours).collect()
    }
}

/// Whether the Service stands for a host outside of the cluster.
pub(super) fn is_external_name(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"))
}

/// The number of a port of a pod.
pub(super) fn port_of(pod: &Pod, port: &IntOrString) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            let named = ports.find(|port| port.name.as_deref() == Some(name))?;
            u16::try_from(named.container_port).ok()
        }
    }
}

/// Whether the pod is ready.
pub(super) fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn words(job: &Job) -> impl Iterator<Item = &str> {
    let pod = job.spec.iter().filter_map(|spec| spec.template.spec.as_ref());
    let containers = pod.flat_map(|pod| &pod.containers);
    containers.flat_map(|one| one.command.iter().flatten().chain(one.args.iter().flatten())).map(String::as_str)
}

/// Whether the Job makes certificates.
fn makes_certificates(job: &Job) -> bool {
    let name = job.name_any();
    ["cert-gen", "ca-inject", "certgen"].iter().any(|part| name.contains(part))
        || words(job).any(|word| word.contains("openssl") || word == "certs")
}

/// Whether the Job publishes a CA.
pub(super) fn publishes(job: &Job) -> bool {
    job.name_any().contains("ca-inject") || words(job).any(|word| word == "publish")
}
