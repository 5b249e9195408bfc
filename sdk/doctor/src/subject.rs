//! The installation to check, and the objects that should be in the cluster.

use std::time::Duration;

use portcullis_manifest::{Access, CertificateMode, Installation, Webhook, WebhookKind};

use super::configuration::Entry;

/// An installation of an operator, and the objects that its registration expects.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The installation, after which its objects are named.
    pub installation: Installation,
    /// The operator's binary, as it begins a command.
    pub program: String,
    /// The flags that select this installation in commands of the operator's binary, each preceded by a space.
    pub flags: String,
    /// The entries of its webhook configurations, before namespaces are excluded in which they could lock the cluster.
    pub webhooks: Vec<Webhook>,
    /// CRDs whose objects it converts, each with the path of its conversion webhook.
    pub conversions: Vec<(String, String)>,
    /// The kinds that it installs.
    pub kinds: Vec<Kind>,
    /// The rights that its ServiceAccount needs.
    pub rights: Access,
}

/// A kind that the operator installs.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Name of the CRD.
    pub crd: String,
    /// API group.
    pub group: String,
    /// The version in which its objects are read.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural name.
    pub plural: String,
    /// Whether it is namespaced.
    pub namespaced: bool,
}

/// Questions about an installation, beside whether it works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Check only objects of this namespace, and whether the webhooks are called for it.
    pub in_namespace: Option<String>,
    /// An object whose deletion takes longer counts as stuck.
    pub stuck_after: Duration,
    /// Call the pods by their addresses, which works inside the cluster.
    pub call_pods: bool,
    /// The message of a refusal to explain.
    pub denial: Option<String>,
    /// Name of an object, to find decisions about it in the logs.
    pub object: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { in_namespace: None, stuck_after: Duration::from_mins(2), call_pods: false, denial: None, object: None }
    }
}

impl Subject {
    /// The entries of the configuration of this kind.
    pub(super) fn webhooks_of(&self, kind: WebhookKind) -> impl Iterator<Item = &Webhook> {
        self.webhooks.iter().filter(move |webhook| webhook.kind == kind)
    }

    /// Name of the configuration of this kind.
    pub(super) fn configuration(&self, kind: WebhookKind) -> String {
        match kind {
            WebhookKind::Validating => self.installation.validating(),
            WebhookKind::Mutating => self.installation.mutating(),
        }
    }

    /// Whether the API server calls it.
    pub(super) fn is_called(&self) -> bool {
        self.installation.webhooks.is_on() && !(self.webhooks.is_empty() && self.conversions.is_empty())
    }

    /// All paths that are served.
    pub(super) fn paths(&self) -> Vec<&str> {
        let conversions = self.conversions.iter().map(|(_, path)| path.as_str());
        self.webhooks.iter().map(|webhook| webhook.path.as_str()).chain(conversions).collect()
    }

    /// A command of the operator's own binary, for this installation.
    pub(super) fn command(&self, words: &str) -> String {
        format!("{} {words}{}", self.program, self.flags)
    }

    /// The command that generates manifests of this sort and applies them, over what others wrote into their fields.
    pub(super) fn apply(&self, what: &str) -> String {
        const APPLY: &str = "| kubectl apply --server-side --force-conflicts -f -";
        // A CRD serves the whole cluster: for a restricted installation none is generated.
        if what == "crds" && self.installation.restricted_to.is_some() {
            return format!("it is the cluster-wide installation's: {} generate crds {APPLY}", self.program);
        }
        let mut words = format!("generate {what}");
        if what == "operator" {
            words.push_str(" --image IMAGE");
        }
        if self.installation.certificates == CertificateMode::External && !matches!(what, "rbac" | "certificates") {
            words.push_str(" --ca-bundle ca.crt");
        }
        format!("{} {APPLY}", self.command(&words))
    }

    /// The command that puts an entry back as it is generated: in its configuration, or in its CRD.
    pub(super) fn restore(&self, entry: &Entry) -> String {
        self.apply(if entry.is_conversion() { "crds" } else { "webhooks" })
    }

    /// Returns this installation with automatic certificates.
    pub(super) fn automatic(&self) -> Self {
        let mut other = self.clone();
        let before = std::mem::take(&mut other.installation.certificates);
        other.flags = other.flags.replace(&format!(" --certificates={before}"), "");
        other
    }

    /// Namespace and name of its Service.
    pub(super) fn place(&self) -> (String, String) {
        let service = &self.installation.service;
        (service.namespace.clone(), service.name.clone())
    }

    /// The operator's own namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.installation.namespace
    }
}
