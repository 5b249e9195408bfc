//! The settings that an operator is started with.

use std::str::FromStr;

use mcp_api::v1beta1::SecretKeyRef;
use mcp_runconfig::endpoint::{Egress, IpNet};

use crate::reference::{Content, MountedFile, Source};

/// The settings that an operator is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Image of the proxy.
    pub runner_image: String,
    /// Registries, or paths in them, whose images have the tags of those that they mirror.
    pub image_mirrors: Vec<String>,
    /// Address proxies listen on.
    pub proxy_host: String,
    /// Image pull secrets added behind each workload's own.
    pub default_image_pull_secrets: Vec<String>,
    /// The abilities of the proxy's image, by the names of [`abilities`](mcp_runconfig::chain::abilities). A guard that needs something else
    /// cannot be enforced.
    pub runner_middleware: Vec<String>,
    /// Origins of web pages that may call every proxy.
    pub allowed_origins: Vec<String>,
    /// Networks of proxies before those of workloads, whose headers tell the address of the client.
    pub trusted_proxies: Vec<IpNet>,
    /// Networks whose addresses count as public where a proxy may call public addresses only.
    pub exempt_endpoints: Vec<IpNet>,
    /// The proxy through which proxies call https servers.
    pub egress: Option<Egress>,
    /// The root certificates that proxies trust in place of those of their image.
    pub ca_bundle: Option<CaBundle>,
    /// The Redis for the sessions of workloads that name no store for them.
    pub default_redis: Option<DefaultRedis>,
    /// Address or name of the Kubernetes API, where it is known: no remote server may be there.
    pub kubernetes_api: Option<String>,
    /// Whether workloads may have no hostPath, no host namespaces, no privileged containers, and only the ServiceAccounts that are made for
    /// them.
    pub restrict_workloads: bool,
    /// The operator's own things in its namespace, where that is known.
    pub home: Option<Home>,
}

/// The operator's own things in its namespace: no workload there may name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The namespace.
    pub namespace: String,
    /// Name of its ServiceAccount.
    pub account: String,
    /// Names of Secrets.
    pub secrets: Vec<String>,
}

impl Settings {
    /// The operator's own things in this namespace.
    pub fn home_in(&self, namespace: &str) -> Option<&Home> {
        self.home.as_ref().filter(|home| home.namespace == namespace)
    }

    /// Whether the proxy's image has all these types of middleware.
    pub fn can_run(&self, middleware: &[&str]) -> bool {
        middleware.iter().all(|kind| self.runner_middleware.iter().any(|known| known == kind))
    }
}

impl DefaultRedis {
    /// Its Secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretKeyRef> {
        self.password.iter().chain(&self.authorities)
    }
}

impl Home {
    /// Why nobody else may name this ServiceAccount, where nobody may.
    pub fn account_problem(&self, name: &str) -> Option<String> {
        (self.account == name).then(|| format!("ServiceAccount {name:?} belongs to the operator; name another one"))
    }

    /// Why nobody else may name this Secret, where nobody may.
    pub fn secret_problem(&self, name: &str) -> Option<String> {
        let is_ours = self.secrets.iter().any(|own| own == name);
        is_ours.then(|| format!("Secret {name:?} belongs to the operator; name another one"))
    }
}

/// The Redis for the sessions of workloads that name no store for them. Its Secrets are in the namespace of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultRedis {
    /// Host and port, as the operator was given them.
    pub address: String,
    /// Its password.
    pub password: Option<SecretKeyRef>,
    /// Whether proxies connect with TLS.
    pub tls: bool,
    /// The authorities that its certificate may come from, in place of those that proxies trust otherwise.
    pub authorities: Option<SecretKeyRef>,
}

/// Root certificates in a ConfigMap that every namespace with proxies has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaBundle {
    config_map: String,
    key: String,
}

impl CaBundle {
    /// As a file of a proxy.
    pub fn file(&self) -> MountedFile {
        MountedFile {
            source: Source::ConfigMap(self.config_map.clone()),
            key: self.key.clone(),
            content: Content::Authorities,
            volume: "proxy-ca-bundle".to_owned(),
            directory: "/etc/toolhive/ca-bundle".to_owned(),
            file: self.key.clone().into(),
            optional: false,
        }
    }
}

/// `CONFIGMAP/KEY`.
impl FromStr for CaBundle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |name: &str| {
            !matches!(name, "" | "." | "..")
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        let parts = text.split_once('/').filter(|(config_map, key)| is_name(config_map) && is_name(key));
        let (config_map, key) = parts.ok_or("is no CONFIGMAP/KEY, such as private-roots/ca.crt")?;
        Ok(Self { config_map: config_map.to_owned(), key: key.to_owned() })
    }
}
