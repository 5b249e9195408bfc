//! One installation of an operator, and the names that follow from it.

use std::fmt;

use crate::{Account, Overrides, ServiceRef, Webhook, WebhookKind, scope_policy_name};

/// A feature that is on unless it is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// The feature is on.
    #[default]
    On,
    /// The feature is off.
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "on" } else { "off" })
    }
}

/// The issuer of the serving certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateMode {
    /// The operator issues and rotates the certificate itself.
    #[default]
    Automatic,
    /// cert-manager issues the certificate, and publishes the CA.
    CertManager,
    /// A person fills the Secret, and puts the CA into the manifests.
    External,
    /// Commands of the binary that run at each installation and upgrade, as the hooks of a chart: `certs ensure` before,
    /// `certs publish` after. Nothing is renewed in between, and the operator has no right to write certificates.
    Hooks,
}

impl CertificateMode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Automatic, Self::CertManager, Self::External, Self::Hooks];

    /// The word for it in flags and in the values of charts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::CertManager => "cert-manager",
            Self::External => "external",
            Self::Hooks => "hooks",
        }
    }

    /// The issuer, for the help of a command line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Automatic => "The operator itself",
            Self::CertManager => "cert-manager, which also publishes the CA",
            Self::External => "You: a Secret that you fill, and a CA that you put into the manifests",
            Self::Hooks => "Commands at each installation and upgrade: 'certs ensure' before, 'certs publish' after",
        }
    }
}

impl fmt::Display for CertificateMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The objects that the CA bundle is published in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configurations {
    /// Name of the validating configuration, and the names of the operator's webhooks in it.
    pub validating: Option<(String, Vec<String>)>,
    /// The mutating configuration, in the same form.
    pub mutating: Option<(String, Vec<String>)>,
    /// Names of the CRDs whose objects the operator converts.
    pub crds: Vec<String>,
}

/// One installation of an operator in a cluster. The names of all its objects follow from this value.
#[derive(Clone, Debug, PartialEq)]
pub struct Installation {
    /// The operator's own name (`Operator::new`), the same in every installation.
    pub operator: &'static str,
    /// Name of the installation, after which its objects are named.
    pub release: String,
    /// Namespace that the operator is installed in.
    pub namespace: String,
    /// Namespace of the Lease of leader election. Installations of an operator that share it exclude each other.
    pub leader_election_namespace: String,
    /// The one namespace that it serves; all when `None`.
    pub restricted_to: Option<String>,
    /// Name of the Lease by which a restricted installation holds its namespace. All installations of an operator have
    /// the same, because the cluster-wide one has to know it.
    pub scope_lease: String,
    /// The Service through which the API server calls the webhooks.
    pub service: ServiceRef,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// Issuer of the serving certificate.
    pub certificates: CertificateMode,
    /// Name of the Secret with the serving certificate and its key.
    pub secret: String,
    /// Whether it serves webhooks.
    pub webhooks: Switch,
    /// Settings of all its webhooks, in place of those that they are registered with.
    pub overrides: Overrides,
}

impl Installation {
    /// Name of the validating configuration: `<release>-validating`, and `<release>-validating-<ns>` when restricted.
    pub fn validating(&self) -> String {
        self.cluster_scoped(&format!("{}-validating", self.release))
    }

    /// Name of the mutating configuration: `<release>-mutating`, and `<release>-mutating-<ns>` when restricted.
    pub fn mutating(&self) -> String {
        self.cluster_scoped(&format!("{}-mutating", self.release))
    }

    /// Name of the ClusterRole: `<release>:<namespace>`. It is unique, because neither part contains a colon.
    pub fn role(&self) -> String {
        format!("{}:{}", self.release, self.namespace)
    }

    /// Its ServiceAccount, and the names of the account's roles.
    pub fn account(&self) -> Account {
        Account {
            leader_election_namespace: self.leader_election_namespace.clone(),
            name: self.release.clone(),
            namespace: self.namespace.clone(),
            cluster_role: self.role(),
            restricted_to: self.restricted_to.clone(),
        }
    }

    /// Name of the Secret with the CA, in automatic mode.
    pub fn ca_secret(&self) -> String {
        format!("{}-ca", self.secret)
    }

    /// The DNS name by which the API server calls the webhooks.
    pub fn server_name(&self) -> String {
        self.service.server_name()
    }

    /// All DNS names of the Service, which the certificate names.
    pub fn server_names(&self) -> Vec<String> {
        let server = self.server_name();
        let long = format!("{server}.{}", self.cluster_domain);
        vec![server, long, format!("{}.{}", self.service.name, self.service.namespace)]
    }

    /// Name of the Lease of leader election. It is named after the operator and not after the release, so that
    /// installations in one namespace exclude each other.
    pub fn leader_lease(&self) -> String {
        format!("{}-leader", self.operator)
    }

    /// The installation as people name it: `<namespace>/<release>`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.release)
    }

    /// Name of the policy, and of its binding, that hands the namespace over to a restricted operator. They are named
    /// after the operator as well.
    pub fn scope_policy(&self) -> Option<String> {
        let namespace = self.restricted_to.as_ref()?;
        Some(scope_policy_name(&self.scope_lease, namespace))
    }

    /// The entries of its webhook configurations, with its overrides; those of a restricted installation select its
    /// namespace.
    pub fn webhooks(&self, registered: Vec<Webhook>) -> Vec<Webhook> {
        let here = |entry: Webhook| match &self.restricted_to {
            Some(namespace) => entry.restrict_to_namespace(namespace),
            None => Some(entry),
        };
        registered.into_iter().filter_map(here).map(|entry| entry.with_overrides(&self.overrides)).collect()
    }

    /// The objects to publish its CA in: the configurations with these [entries](Self::webhooks), and these CRDs, whose
    /// objects it converts.
    pub fn configurations(&self, entries: &[Webhook], converted: Vec<String>) -> Configurations {
        let of = |kind, configuration: String| {
            let names: Vec<_> = entries.iter().filter(|w| w.kind == kind).map(|w| w.name.clone()).collect();
            (!names.is_empty()).then_some((configuration, names))
        };
        Configurations {
            validating: of(WebhookKind::Validating, self.validating()),
            mutating: of(WebhookKind::Mutating, self.mutating()),
            crds: converted,
        }
    }

    fn cluster_scoped(&self, name: &str) -> String {
        match &self.restricted_to {
            Some(namespace) => format!("{name}-{namespace}"),
            None => name.to_owned(),
        }
    }
}
