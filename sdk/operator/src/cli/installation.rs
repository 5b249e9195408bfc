//! The flags that name an installation of an operator.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use portcullis_manifest::names::{is_label, is_subdomain};
use portcullis_manifest::{CertificateMode, Installation, ServiceRef, Switch};

use super::overrides::OverrideFlags;
use crate::Operator;
use crate::installation::{CLUSTER_DOMAIN, InstallationError, SetupContext, checked, label, secret_of, service_name};

/// Reads a flag with these two values.
pub(super) fn switch(on: &'static str, off: &'static str) -> impl TypedValueParser<Value = Switch> {
    let values = [PossibleValue::new("on").help(on), PossibleValue::new("off").help(off)];
    PossibleValuesParser::new(values).map(|word| if word == "on" { Switch::On } else { Switch::Off })
}

/// Reads the source of the certificates.
fn certificate_mode() -> impl TypedValueParser<Value = CertificateMode> {
    let values = CertificateMode::ALL.map(|mode| PossibleValue::new(mode.as_str()).help(mode.about()));
    PossibleValuesParser::new(values)
        .map(|word| CertificateMode::ALL.into_iter().find(|mode| mode.as_str() == word).unwrap_or_default())
}

/// The flags that distinguish one installation of an operator from another. Every command that concerns a cluster takes
/// them, and the same values give the same names in all of them.
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
    /// Describes the installation of `operator` for its setup, in `namespace` where that is known.
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
}

impl<A> Operator<A> {
    /// The installation of these flags; without a namespace it is in `<release>-system`.
    pub(super) fn resolve(
        &self,
        flags: &InstallationFlags,
        namespace: Option<&str>,
    ) -> Result<Installation, InstallationError> {
        let release = flags.release.as_deref().unwrap_or(self.name);
        let mut installation = self.default_installation(release, namespace);
        if let Some(namespace) = &flags.leader_election_namespace {
            installation.leader_election_namespace.clone_from(namespace);
        }
        if let Some(name) = &flags.service_name {
            installation.service.name.clone_from(name);
        }
        installation.service.port = flags.service_port;
        checked(Installation {
            restricted_to: flags.restricted_to(),
            cluster_domain: flags.cluster_domain.clone(),
            certificates: flags.certificates,
            secret: flags.secret(release),
            webhooks: flags.webhooks,
            overrides: flags.overrides.overrides(),
            ..installation
        })
    }
}

/// A namespace, or nothing for all: so is `WATCH_NAMESPACE` meant, by which others restrict operators.
fn restriction(text: &str) -> Result<String, &'static str> {
    if text.contains(',') {
        return Err("an installation serves one namespace or all of them: make one for each namespace");
    }
    if text.is_empty() { Ok(String::new()) } else { label(text) }
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
        Operator::new("op").resolve(&flags, Some(namespace))
    }

    #[test]
    fn no_two_installations_share_a_role_or_a_configuration() {
        let mut roles = std::collections::BTreeSet::new();
        let mut configurations = std::collections::BTreeSet::new();
        // Names that would be ambiguous if they were only joined.
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
        assert!(Operator::new("op").resolve(&flags(55, None), None).is_ok());
        assert!(
            Operator::new("op")
                .resolve(&flags(56, None), None)
                .unwrap_err()
                .to_string()
                .contains("cannot have a Service")
        );
        let said = Operator::new("op").resolve(&flags(57, Some("hooks")), None).unwrap_err().to_string();
        assert!(said.ends_with("; give --namespace"), "{said}");
        assert!(Operator::new("op").resolve(&flags(63, Some("hooks")), Some("here")).is_ok());
    }
}
