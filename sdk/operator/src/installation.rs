//! The flags that say which installation of an operator is meant.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use portcullis_manifest::names::{is_label, is_subdomain};
use portcullis_manifest::{CertificateMode, Configurations, Installation, ServiceRef, Switch, Webhook};
use portcullis_webhook::Webhooks;

use super::error::ComponentsError;
use super::overrides::OverrideFlags;

/// The DNS domain of clusters, unless another is said.
pub(super) const CLUSTER_DOMAIN: &str = "cluster.local";

/// Name of the Service of a release, unless another is said.
pub(super) fn service_of(release: &str) -> String {
    format!("{release}-webhook")
}

/// Name of the Secret with a release's pair, unless another is said.
pub(super) fn secret_of(release: &str) -> String {
    format!("{release}-webhook-tls")
}

/// Reads a flag of which these are the two meanings.
pub(super) fn switch(on: &'static str, off: &'static str) -> impl TypedValueParser<Value = Switch> {
    let values = [PossibleValue::new("on").help(on), PossibleValue::new("off").help(off)];
    PossibleValuesParser::new(values).map(|word| if word == "on" { Switch::On } else { Switch::Off })
}

/// Reads who makes the certificates.
fn certificate_mode() -> impl TypedValueParser<Value = CertificateMode> {
    let values = CertificateMode::ALL.map(|mode| PossibleValue::new(mode.as_str()).help(mode.about()));
    PossibleValuesParser::new(values)
        .map(|word| CertificateMode::ALL.into_iter().find(|mode| mode.as_str() == word).unwrap_or_default())
}

/// The entries of an installation's configurations.
pub(super) fn entries(installation: &Installation, webhooks: &Webhooks) -> Result<Vec<Webhook>, ComponentsError> {
    Ok(installation.webhooks(webhooks.manifests()?))
}

/// The objects in which callers of an installation find its CA.
pub(super) fn configurations(
    installation: &Installation,
    webhooks: &Webhooks,
) -> Result<Configurations, ComponentsError> {
    if !installation.webhooks.is_on() {
        return Ok(Configurations::default());
    }
    let entries = entries(installation, webhooks)?;
    // A CRD has one converter for all namespaces, so a restricted operator converts nothing.
    let conversions = if installation.restricted_to.is_some() { Vec::new() } else { webhooks.conversions()? };
    let converted = conversions.into_iter().map(|conversion| conversion.crd).collect();
    Ok(installation.configurations(&entries, converted))
}

/// The flags that tell one installation of an operator from another. Every command that concerns a cluster takes them,
/// and the same values give the same names in all of them.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct InstallationFlags {
    /// Name of the installation, after which configurations, roles, Service and Secrets are named [default: the
    /// operator's]
    #[arg(long, value_parser = label)]
    pub(super) release: Option<String>,
    /// Namespace of the Lease by which one replica leads; installations of this operator that share it exclude each
    /// other [default: the operator's own]
    #[arg(long, value_name = "NAMESPACE", value_parser = label)]
    pub(super) leader_election_namespace: Option<String>,
    /// Serve this namespace only, which a cluster-wide operator then skips; all namespaces when empty
    #[arg(long, value_name = "NAMESPACE", value_parser = restriction)]
    pub(super) restrict_to_namespace: Option<String>,
    /// Name of the Service through which the API server calls the webhooks [default: <release>-webhook]
    #[arg(long, value_parser = service_name)]
    pub(super) service_name: Option<String>,
    /// Port of that Service
    #[arg(long, default_value_t = ServiceRef::PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) service_port: u16,
    /// The cluster's DNS domain, for the certificate's names
    #[arg(long, default_value = CLUSTER_DOMAIN, value_name = "DOMAIN", value_parser = domain)]
    pub(super) cluster_domain: String,
    /// Issuer of the serving certificate
    #[arg(long, default_value_t, value_parser = certificate_mode())]
    pub(super) certificates: CertificateMode,
    /// Secret with the serving certificate and its key [default: <release>-webhook-tls]
    #[arg(long, value_name = "NAME", value_parser = secret_name)]
    pub(super) certificate_secret: Option<String>,
    /// Whether webhooks are served; without them controllers validate
    #[arg(long, default_value_t, value_parser = switch("Webhooks validate", "Controllers validate instead"))]
    pub(super) webhooks: Switch,
    #[command(flatten)]
    pub(super) overrides: OverrideFlags,
}

impl Default for InstallationFlags {
    fn default() -> Self {
        Self {
            release: None,
            leader_election_namespace: None,
            restrict_to_namespace: None,
            service_name: None,
            service_port: ServiceRef::PORT,
            cluster_domain: CLUSTER_DOMAIN.to_owned(),
            certificates: CertificateMode::default(),
            certificate_secret: None,
            webhooks: Switch::default(),
            overrides: OverrideFlags::default(),
        }
    }
}

impl InstallationFlags {
    /// Tells setup of the installation of `operator`, which lives in `namespace` where that is known.
    pub(super) fn setup_context(&self, operator: &str, namespace: Option<&str>) -> SetupContext {
        let release = self.release.clone().unwrap_or_else(|| operator.to_owned());
        SetupContext {
            restricted_to: self.restricted_to(),
            webhooks: self.webhooks,
            namespace: namespace.map(str::to_owned),
            secret: self.secret(&release),
            release,
        }
    }

    /// The Secret with the serving certificate.
    fn secret(&self, release: &str) -> String {
        self.certificate_secret.clone().unwrap_or_else(|| secret_of(release))
    }

    /// The one namespace that is served; an empty one stands for all.
    fn restricted_to(&self) -> Option<String> {
        self.restrict_to_namespace.clone().filter(|namespace| !namespace.is_empty())
    }

    /// The installation of `operator` in `namespace` that is meant; by default it lives in `<release>-system`.
    pub(super) fn resolve(
        &self,
        operator: &'static str,
        namespace: Option<&str>,
    ) -> Result<Installation, InstallationError> {
        let release = self.release.clone().unwrap_or_else(|| operator.to_owned());
        // `a-validating` for the whole cluster and `a` for a namespace `validating` would have one configuration.
        if let Some(kind) = release.split('-').skip(1).find(|part| ["validating", "mutating"].contains(part)) {
            let kind = kind.to_owned();
            return Err(InstallationError::Release { release, kind });
        }
        let name = self.service_name.clone().unwrap_or_else(|| service_of(&release));
        if let Err(fix) = service_name(&name) {
            return Err(InstallationError::Service { release, service: name, fix });
        }
        let namespace = namespace.map_or_else(|| format!("{release}-system"), str::to_owned);
        if let Err(fix) = label(&namespace) {
            return Err(InstallationError::Namespace { release, namespace, fix });
        }
        Ok(Installation {
            operator,
            leader_election_namespace: self.leader_election_namespace.clone().unwrap_or_else(|| namespace.clone()),
            restricted_to: self.restricted_to(),
            scope_lease: format!("{operator}-namespace-scope"),
            service: ServiceRef { namespace: namespace.clone(), name, port: self.service_port },
            namespace,
            cluster_domain: self.cluster_domain.clone(),
            certificates: self.certificates,
            secret: self.secret(&release),
            webhooks: self.webhooks,
            overrides: self.overrides.overrides(),
            release,
        })
    }
}

/// The part of an installation that webhooks and controllers may depend on when they are made
/// ([`Operator::setup_with_context`](super::Operator::setup_with_context)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetupContext {
    /// The one namespace that it serves; all when `None`.
    pub restricted_to: Option<String>,
    /// Whether webhooks validate; when they are off, controllers do.
    pub webhooks: Switch,
    /// The operator's own namespace, where the command line or `POD_NAMESPACE` tells it.
    pub namespace: Option<String>,
    /// Name of the installation: its ServiceAccounts are called `<release>` and `<release>-<controller>`.
    pub release: String,
    /// Name of the Secret with the serving certificate. Its authority is in `<secret>-ca`, or with cert-manager in `<secret>-root`.
    pub secret: String,
}

impl From<&Installation> for SetupContext {
    fn from(installation: &Installation) -> Self {
        Self {
            restricted_to: installation.restricted_to.clone(),
            webhooks: installation.webhooks,
            namespace: Some(installation.namespace.clone()),
            release: installation.release.clone(),
            secret: installation.secret.clone(),
        }
    }
}

/// A name that an installation cannot have. Choose another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallationError {
    /// Another release could have the same webhook configurations. Choose another release.
    #[error(
        "release {release:?} could have the webhook configurations of another release, because it contains '-{kind}'; \
         give another --release"
    )]
    Release {
        /// The release.
        release: String,
        /// The part of its name that is not allowed.
        kind: String,
    },
    /// Kubernetes would refuse the name of the Service. Choose another release or Service.
    #[error("operator {release:?} cannot have a Service {service:?}: {fix}")]
    Service {
        /// The release.
        release: String,
        /// The Service's name.
        service: String,
        /// The form of a valid name.
        fix: &'static str,
    },
    /// No namespace can have this name. Choose another namespace.
    #[error("operator {release:?} cannot be installed in a namespace {namespace:?}: {fix}; give --namespace")]
    Namespace {
        /// The release.
        release: String,
        /// The namespace.
        namespace: String,
        /// The form of a valid name.
        fix: &'static str,
    },
}

/// A name as Kubernetes has it for namespaces (RFC 1123).
pub(super) fn label(text: &str) -> Result<String, &'static str> {
    if is_label(text) {
        return Ok(text.to_owned());
    }
    Err("use 1 to 63 lower-case letters, digits and '-', which neither begin nor end with '-'")
}

/// A namespace, or nothing for all: so is `WATCH_NAMESPACE` meant, by which others restrict operators.
fn restriction(text: &str) -> Result<String, &'static str> {
    if text.contains(',') {
        return Err("an installation serves one namespace or all of them: make one for each namespace");
    }
    if text.is_empty() { Ok(String::new()) } else { label(text) }
}

/// A name as Kubernetes has it for Services: the same, beginning with a letter (RFC 1035).
pub(super) fn service_name(text: &str) -> Result<String, &'static str> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err("the name of a Service begins with a letter");
    }
    label(text)
}

/// A name as Kubernetes has it for Secrets (RFC 1123 subdomain), of which one that is longer by `-ca` is one as well.
pub(super) fn secret_name(text: &str) -> Result<String, &'static str> {
    if text.len() <= 250 && is_subdomain(text) {
        return Ok(text.to_owned());
    }
    Err("use 1 to 250 lower-case letters, digits, '-' and '.', with a letter or digit beside each '.' and at both ends")
}

/// A DNS domain: labels with dots between them.
fn domain(text: &str) -> Result<String, &'static str> {
    if text.len() <= 200 && text.split('.').all(is_label) {
        return Ok(text.to_owned());
    }
    Err("use DNS labels with dots between them, as in cluster.local")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(
        release: &str,
        namespace: &str,
        restricted_to: Option<&str>,
    ) -> Result<Installation, InstallationError> {
        let flags = InstallationFlags {
            release: Some(release.to_owned()),
            restrict_to_namespace: restricted_to.map(str::to_owned),
            ..InstallationFlags::default()
        };
        flags.resolve("op", Some(namespace))
    }

    #[test]
    fn no_two_installations_share_a_role_or_a_configuration() {
        let mut roles = std::collections::BTreeSet::new();
        let mut configurations = std::collections::BTreeSet::new();
        // Names that run into each other when they are only joined.
        let words = ["a", "b", "a-b", "b-c", "validating", "a-validating", "b-validating-c", "mutating"];
        for release in words {
            for restricted_to in [None].into_iter().chain(words.map(Some)) {
                let Ok(installation) = installed(release, "here", restricted_to) else { continue };
                assert!(configurations.insert(installation.validating()), "{installation:?}");
                assert!(configurations.insert(installation.mutating()), "{installation:?}");
            }
            for namespace in words {
                let Ok(installation) = installed(release, namespace, None) else { continue };
                assert!(roles.insert(installation.role()), "{installation:?}");
            }
        }
        for refused in ["a-validating", "a-mutating-b"] {
            let said = installed(refused, "here", None).unwrap_err().to_string();
            assert!(said.ends_with("give another --release"), "{said}");
        }
        assert!(installed("validating", "here", None).is_ok(), "it does not end another's name");
    }

    #[test]
    fn an_installation_is_restricted_to_one_namespace_or_to_none() {
        assert_eq!(restriction("team-a"), Ok("team-a".to_owned()));
        assert_eq!(installed("op", "here", Some("")).unwrap().restricted_to, None);
        assert!(restriction("team-a,team-b").unwrap_err().contains("make one for each"));
        assert!(restriction("Team").is_err());
    }

    #[test]
    fn a_release_too_long_for_its_names_is_refused_with_the_flag() {
        let flags = |release: usize, service: Option<&str>| InstallationFlags {
            release: Some("r".repeat(release)),
            service_name: service.map(str::to_owned),
            ..InstallationFlags::default()
        };
        assert!(flags(55, None).resolve("op", None).is_ok());
        assert!(flags(56, None).resolve("op", None).unwrap_err().to_string().contains("cannot have a Service"));
        let said = flags(57, Some("hooks")).resolve("op", None).unwrap_err().to_string();
        assert!(said.ends_with("; give --namespace"), "{said}");
        assert!(flags(63, Some("hooks")).resolve("op", Some("here")).is_ok());
    }
}
