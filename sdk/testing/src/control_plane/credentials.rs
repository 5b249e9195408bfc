//! The control plane's certificates, and kubeconfigs for its users.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use portcullis_pki::{Ca, CertificateParams, Pair, PkiError, Usage};

use super::error::Doing as _;
use crate::ControlPlaneError;

/// A control plane lives for minutes, at the most days; its clock is this machine's.
const VALID_FOR: SignedDuration = SignedDuration::from_hours(24 * 30);

/// The authority that everyone in this control plane trusts, servers and users.
#[derive(Debug)]
pub(crate) struct Authority {
    ca: Ca,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Authority {
    pub(crate) fn new() -> Result<Self, PkiError> {
        let now = Timestamp::now();
        let (not_before, not_after) = (now - SignedDuration::from_mins(5), now + VALID_FOR);
        Ok(Self { ca: Ca::generate("portcullis-testing", not_before, not_after)?, not_before, not_after })
    }

    pub(crate) fn cert_pem(&self) -> &str {
        self.ca.cert_pem()
    }

    /// The API server's certificate.
    pub(crate) fn serving(&self) -> Result<Pair, PkiError> {
        let dns_names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned);
        self.issue("kube-apiserver", &[], Usage::Server, &dns_names, &[Ipv4Addr::LOCALHOST.into()])
    }

    /// A user's certificate: the name is the user, the organizations are the groups.
    pub(crate) fn user(&self, name: &str, groups: &[&str]) -> Result<Pair, PkiError> {
        self.issue(name, groups, Usage::Client, &[], &[])
    }

    fn issue(
        &self,
        common_name: &str,
        organizations: &[&str],
        usage: Usage,
        dns_names: &[String],
        ip_addresses: &[IpAddr],
    ) -> Result<Pair, PkiError> {
        let (not_before, not_after) = (self.not_before, self.not_after);
        self.ca.issue(&CertificateParams {
            common_name,
            organizations,
            dns_names,
            ip_addresses,
            not_before,
            not_after,
            usage,
        })
    }

    /// A kubeconfig that needs no other file.
    pub(crate) fn kubeconfig(&self, url: &str, user: &str, groups: &[&str]) -> Result<Kubeconfig, PkiError> {
        let pair = self.user(user, groups)?;
        let cluster = "portcullis-testing".to_owned();
        Ok(Kubeconfig {
            kind: Some("Config".to_owned()),
            api_version: Some("v1".to_owned()),
            clusters: vec![NamedCluster {
                name: cluster.clone(),
                cluster: Some(Cluster {
                    server: Some(url.to_owned()),
                    certificate_authority_data: Some(STANDARD.encode(self.cert_pem())),
                    ..Cluster::default()
                }),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: user.to_owned(),
                auth_info: Some(AuthInfo {
                    client_certificate_data: Some(STANDARD.encode(&pair.cert_pem)),
                    client_key_data: Some(STANDARD.encode(&pair.key_pem).into()),
                    ..AuthInfo::default()
                }),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: cluster.clone(),
                context: Some(Context { cluster: cluster.clone(), user: Some(user.to_owned()), ..Context::default() }),
                ..NamedContext::default()
            }],
            current_context: Some(cluster),
            ..Kubeconfig::default()
        })
    }
}

/// Writes a file that only this user may read.
pub(crate) fn write_private(path: &Path, content: &str) -> Result<(), ControlPlaneError> {
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .doing(format!("write {}", path.display()))
}
