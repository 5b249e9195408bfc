//! What belongs to whom in a snapshot.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use portcullis_manifest::WebhookKind;

use super::configuration::{Configuration, Entry, conversion, selects};
use super::snapshot::{Listener, Look, Reached, Snapshot};
use super::subject::Subject;
use portcullis_manifest::Installation;

const INSTANCE: &str = "app.kubernetes.io/instance";
const JOB: &str = "batch.kubernetes.io/job-name";

impl Snapshot {
    /// All webhook configurations that could be seen.
    pub(super) fn all(&self) -> &[Configuration] {
        self.configurations.seen().map(|list| list.items.as_slice()).unwrap_or_default()
    }

    /// The configuration of this installation and kind.
    pub(super) fn configuration(&self, subject: &Subject, kind: WebhookKind) -> Option<&Configuration> {
        let name = subject.configuration(kind);
        self.all().iter().find(|configuration| configuration.kind == kind && configuration.name() == name)
    }

    /// The entries of this installation: those of its configurations under names of its webhooks, and the conversions of
    /// its CRDs. Each with what it is called in messages.
    pub(super) fn ours(&self, subject: &Subject) -> Vec<(String, Entry)> {
        let kinds = [WebhookKind::Validating, WebhookKind::Mutating];
        let mut ours = Vec::new();
        for configuration in kinds.iter().filter_map(|kind| self.configuration(subject, *kind)) {
            let mine = |entry: &&Entry| subject.webhooks_of(configuration.kind).any(|mine| mine.name == entry.name);
            let entries = configuration.entries.iter().filter(mine);
            ours.extend(entries.map(|entry| (format!("{}/{}", configuration.name(), entry.name), entry.clone())));
        }
        ours.extend(self.conversions(subject).map(|(crd, entry)| (format!("{crd}/conversion"), entry)));
        ours
    }

    /// The CRDs that are converted by a webhook, each with the entry for that.
    pub(super) fn conversions<'a>(&'a self, subject: &'a Subject) -> impl Iterator<Item = (&'a str, Entry)> {
        let seen = |name: &String| self.crds.get(name)?.seen()?.as_ref().and_then(conversion);
        subject.conversions.iter().filter_map(move |(name, _)| Some((&**name, seen(name)?)))
    }

    /// The port of its Service on which this installation is called, where that is sure and not what its flags say.
    pub(super) fn called_port(&self, subject: &Subject) -> Option<u16> {
        let given = subject.installation.service.port;
        let own = |entry: &Entry| entry.service() == Some(subject.place());
        let entries: Vec<_> = self.ours(subject).into_iter().map(|(_, entry)| entry).filter(own).collect();
        let port = u16::try_from(entries.first()?.port()).ok()?;
        if port == given || entries.iter().any(|entry| entry.port() != i32::from(port)) {
            return None;
        }
        let ports = self.service(subject)?.spec.as_ref()?.ports.as_deref().unwrap_or_default();
        let has = |port: u16| ports.iter().any(|one| one.port == i32::from(port));
        // A Service that stands for a host has no ports: what answers there has.
        let answers = |listener: &Listener| {
            matches!(listener.reached, Reached::Answered(_)) && listener.address.is_some_and(|at| at.port() == port)
        };
        let works =
            if self.is_external(subject) { self.listeners.iter().any(answers) } else { has(port) && !has(given) };
        works.then_some(port)
    }

    /// Entries of any configuration that bear a name of ours or are called for updates of our kinds.
    pub(super) fn related(&self, subject: &Subject) -> impl Iterator<Item = (&Configuration, &Entry)> {
        let entries = self.all().iter().flat_map(|one| one.entries.iter().map(move |entry| (one, entry)));
        entries.filter(|(_, entry)| {
            subject.webhooks.iter().any(|webhook| webhook.name == entry.name)
                || subject.kinds.iter().any(|kind| entry.covers_updates_of(kind))
        })
    }

    /// Configurations of any installation of this operator: by the names of its webhooks.
    pub(super) fn family(&self, subject: &Subject) -> impl Iterator<Item = &Configuration> {
        self.all().iter().filter(|configuration| {
            configuration.entries.iter().any(|entry| subject.webhooks.iter().any(|mine| mine.name == entry.name))
        })
    }

    /// The Service of this installation.
    pub(super) fn service(&self, subject: &Subject) -> Option<&Service> {
        self.services.get(&subject.place()).and_then(Look::seen)?.as_ref()
    }

    /// Whether the webhooks are served from outside of the cluster: then there are no pods of it to look at.
    pub(super) fn is_external(&self, subject: &Subject) -> bool {
        let spec = self.service(subject).and_then(|service| service.spec.as_ref());
        spec.is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"))
    }

    /// Which port of the pods the Service calls.
    pub(super) fn target_port(&self, subject: &Subject) -> Option<IntOrString> {
        let ports = self.service(subject)?.spec.as_ref()?.ports.as_ref()?;
        let port = ports.iter().find(|port| port.port == i32::from(subject.installation.service.port))?;
        Some(port.target_port.clone().unwrap_or(IntOrString::Int(port.port)))
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

    /// The Deployment of this installation: the one whose pods the Service selects, or the one that is named like it.
    pub(super) fn deployment(&self, subject: &Subject) -> Option<&Deployment> {
        let deployments = &self.deployments.seen()?.items;
        let selected = deployments.iter().find(|deployment| {
            let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
            let labels = template.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
            self.selector(subject)
                .is_some_and(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
        });
        let installation = &subject.installation;
        let named = |deployment: &&Deployment| {
            deployment.name_any() == installation.release
                || deployment.labels().get(INSTANCE).is_some_and(|instance| *instance == installation.release)
        };
        selected.or_else(|| deployments.iter().find(named))
    }

    fn selector(&self, subject: &Subject) -> Option<&std::collections::BTreeMap<String, String>> {
        let selector = self.service(subject)?.spec.as_ref()?.selector.as_ref()?;
        (!selector.is_empty()).then_some(selector)
    }

    /// The pods of this installation.
    pub(super) fn operator_pods(&self, subject: &Subject) -> Vec<&Pod> {
        let Some(pods) = self.pods.seen() else { return Vec::new() };
        let of_deployment = self.deployment(subject).and_then(|deployment| Some(&deployment.spec.as_ref()?.selector));
        let ours = |pod: &&Pod| match (of_deployment, self.selector(subject)) {
            (Some(selector), _) => selects(Some(selector), pod.labels()),
            (None, Some(selector)) => selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value)),
            (None, None) => false,
        };
        pods.items.iter().filter(ours).collect()
    }

    /// Name of the ServiceAccount that the operator runs under.
    pub(super) fn account(&self, subject: &Subject) -> String {
        let spec = self.deployment(subject).and_then(|deployment| deployment.spec.as_ref()?.template.spec.as_ref());
        spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_else(|| subject.installation.release.clone())
    }

    /// The Jobs that prepare this installation, by their label; of those without one, such as are called after it and are
    /// about certificates.
    pub(super) fn hooks(&self, subject: &Subject) -> Vec<&Job> {
        let Installation { release, service, secret, .. } = &subject.installation;
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
        self.jobs.seen().map(|jobs| jobs.items.iter().filter(ours).collect()).unwrap_or_default()
    }

    /// The pods of those Jobs that did not succeed.
    pub(super) fn job_pods(&self, subject: &Subject) -> Vec<&Pod> {
        let unfinished = |job: &&Job| job.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default() == 0;
        let jobs: Vec<String> = self.hooks(subject).into_iter().filter(unfinished).map(ResourceExt::name_any).collect();
        let pods = self.pods.seen().map(|pods| pods.items.as_slice()).unwrap_or_default();
        pods.iter().filter(|pod| pod.labels().get(JOB).is_some_and(|job| jobs.contains(job))).collect()
    }
}

/// Whether it is taken for ready.
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

/// Whether it makes certificates by means of its own.
pub(super) fn makes_certificates(job: &Job) -> bool {
    let name = job.name_any();
    ["cert-gen", "ca-inject", "certgen"].iter().any(|part| name.contains(part))
        || words(job).any(|word| word.contains("openssl") || word == "certs")
}

/// Whether it publishes a CA.
pub(super) fn publishes(job: &Job) -> bool {
    job.name_any().contains("ca-inject") || words(job).any(|word| word == "publish")
}
