//! The hooks of a chart that make and publish certificates: Jobs that run the operator's own commands, with no more rights
//! than these need.
//!
//! Two accounts, because the keys are the first one's alone: the second reads the pair and may change nothing but
//! configurations. The first one changes those too: it has the new CA trusted beside the old one while an upgrade lasts.

use portcullis_manifest::{Access, Account, CertificateMode, CommandJob, Configurations, Grant, Labels, Workload};
use serde_json::{Value, json};

use super::arguments::installation_arguments;
use crate::Installation;

/// Names of the Jobs, and of what belongs to them, after the name of the release.
const MAKES: &str = "webhook-cert-gen";
const PUBLISHES: &str = "webhook-ca-inject";

/// A hook: when it runs, and what is there before its Job.
struct Hook {
    name: &'static str,
    /// As Helm calls them.
    events: &'static str,
    /// Of the account; the Job has one more.
    weight: i8,
    access: Access,
    command: Vec<String>,
    retries: u8,
}

/// What there is to know of an installation.
pub(super) struct Hooks<'a> {
    pub(super) installation: &'a Installation,
    pub(super) labels: &'a Labels,
    pub(super) workload: &'a Workload,
    /// Where the CA is published.
    pub(super) configurations: &'a Configurations,
    /// How long a new certificate is valid.
    pub(super) validity: &'a str,
    /// What is at the end of a Job's name: another one at each upgrade, since Jobs do not change.
    pub(super) revision: &'a str,
    /// The operator's own arguments.
    pub(super) own: &'a [String],
}

impl Hooks<'_> {
    /// The objects, in the order in which Helm creates them.
    pub(super) fn manifests(&self) -> Vec<Value> {
        if self.installation.certificates != CertificateMode::Hooks {
            return Vec::new();
        }
        [self.makes(), self.publishes()].into_iter().flat_map(|hook| self.of(hook)).collect()
    }

    fn makes(&self) -> Hook {
        let Installation { secret, .. } = self.installation;
        let secrets = |verbs: &[&'static str]| Grant::new("", &["secrets"], verbs);
        Hook {
            name: MAKES,
            events: "pre-install,pre-upgrade,pre-rollback",
            weight: -5,
            // What is created has no name yet that a role could be narrowed to.
            access: self.publishing(&["list", "patch"]).in_own_namespace([
                secrets(&["create"]),
                secrets(&["get", "patch"]).named([secret.clone(), self.installation.ca_secret()]),
            ]),
            command: vec!["ensure".to_owned(), format!("--certificate-validity={}", self.validity)],
            retries: 3,
        }
    }

    fn publishes(&self) -> Hook {
        let secret = self.installation.secret.clone();
        let read = Grant::new("", &["secrets"], &["get"]).named([secret]);
        Hook {
            name: PUBLISHES,
            events: "post-install,post-upgrade,post-rollback",
            weight: 1,
            access: self.publishing(&["list", "watch", "patch"]).in_own_namespace([read]),
            // Helm waits for five minutes unless it is told otherwise: what is missing is in the log before that.
            command: vec!["publish".to_owned(), "--timeout=4m".to_owned()],
            retries: 5,
        }
    }

    /// The rights to these verbs on the objects that the CA is published in.
    fn publishing(&self, verbs: &[&'static str]) -> Access {
        let mut access = Access::default();
        let Configurations { validating, mutating, crds } = self.configurations;
        let of = |kind: &str, name: &str| Grant::new("admissionregistration.k8s.io", &[kind], verbs).named([name]);
        access.cluster.extend(validating.iter().map(|(name, _)| of("validatingwebhookconfigurations", name)));
        access.cluster.extend(mutating.iter().map(|(name, _)| of("mutatingwebhookconfigurations", name)));
        if !crds.is_empty() {
            let kinds = Grant::new("apiextensions.k8s.io", &["customresourcedefinitions"], verbs);
            access.cluster.push(kinds.named(crds.iter().cloned()));
        }
        access
    }

    /// Account, roles and Job. Helm deletes the account and roles of the run before when the next one begins. The Job of that
    /// run has another name, so Helm leaves it, and it goes by itself.
    fn of(&self, hook: Hook) -> Vec<Value> {
        let Hook { name: component, events, weight, access, command, retries } = hook;
        let Installation { release, namespace, .. } = self.installation;
        let name = format!("{release}-{component}");
        let account = Account {
            name: name.clone(),
            namespace: namespace.clone(),
            leader_election_namespace: namespace.clone(),
            cluster_role: format!("{}:{component}", self.installation.role()),
            restricted_to: self.installation.restricted_to.clone(),
        };
        let words = ["certs".to_owned()].into_iter().chain(command).chain([format!("--namespace={namespace}")]);
        let words = words.chain(installation_arguments(self.installation)).chain(self.own.iter().cloned());
        let job = CommandJob {
            name: format!("{name}-{}", self.revision),
            account: name,
            component,
            args: words.collect(),
            retries,
        };
        let roles = access.manifests(&account, |_, _| false).into_iter().map(|object| (object, weight));
        let objects = roles.chain([(self.workload.job(&job), weight + 1)]);
        let with_annotations = |(mut object, weight): (Value, i8)| {
            self.labels.put_on(&mut object, component);
            object["metadata"]["annotations"] = json!({
                "helm.sh/hook": events,
                "helm.sh/hook-weight": weight.to_string(),
                "helm.sh/hook-delete-policy": "before-hook-creation",
            });
            object
        };
        objects.map(with_annotations).collect()
    }
}
