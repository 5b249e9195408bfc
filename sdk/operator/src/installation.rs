//! The installation of an operator: its defaults, its checks, and the objects that callers find its CA in.

use portcullis_manifest::names::is_label;
use portcullis_manifest::{Configurations, Installation, Switch, Webhook};
use portcullis_webhook::Webhooks;

use super::error::ComponentsError;

/// The DNS domain of clusters, unless another is given.
pub(super) const CLUSTER_DOMAIN: &str = "cluster.local";

/// Name of the Service of a release, unless another is given.
pub(super) fn service_of(release: &str) -> String {
    format!("{release}-webhook")
}

/// Name of the Secret with a release's pair, unless another is given.
pub(super) fn secret_of(release: &str) -> String {
    format!("{release}-webhook-tls")
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

/// Returns the installation if its objects can have the names that follow from it.
pub(super) fn checked(installation: Installation) -> Result<Installation, InstallationError> {
    let Installation { release, namespace, service, .. } = &installation;
    let release = release.clone();
    // `a-validating` for the whole cluster and `a` for a namespace `validating` would have one configuration.
    if let Some(kind) = release.split('-').skip(1).find(|part| ["validating", "mutating"].contains(part)) {
        let kind = kind.to_owned();
        return Err(InstallationError::InvalidRelease { release, kind });
    }
    if let Err(fix) = service_name(&service.name) {
        return Err(InstallationError::InvalidService { release, service: service.name.clone(), fix });
    }
    if let Err(fix) = label(namespace) {
        return Err(InstallationError::InvalidNamespace { release, namespace: namespace.clone(), fix });
    }
    Ok(installation)
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
    /// The operator's own namespace, where the command line or `POD_NAMESPACE` names it.
    pub namespace: Option<String>,
    /// Name of the installation: its ServiceAccounts are called `<release>` and `<release>-<controller>`.
    pub release: String,
    /// Name of the Secret with the serving certificate. Its authority is in `<secret>-ca`, or with cert-manager in
    /// `<secret>-root`.
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
    InvalidRelease {
        /// The release.
        release: String,
        /// The part of its name that is not allowed.
        kind: String,
    },
    /// Kubernetes would refuse the name of the Service. Choose another release or Service.
    #[error("operator {release:?} cannot have a Service {service:?}: {fix}")]
    InvalidService {
        /// The release.
        release: String,
        /// The Service's name.
        service: String,
        /// The form of a valid name.
        fix: &'static str,
    },
    /// No namespace can have this name. Choose another namespace.
    #[error("operator {release:?} cannot be installed in a namespace {namespace:?}: {fix}; give --namespace")]
    InvalidNamespace {
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

/// A name as Kubernetes has it for Services: the same, beginning with a letter (RFC 1035).
pub(super) fn service_name(text: &str) -> Result<String, &'static str> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err("the name of a Service begins with a letter");
    }
    label(text)
}
