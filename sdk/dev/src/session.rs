//! One session: its certificate, its listener, and what it puts into the cluster.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use portcullis_manifest::Webhook;
use portcullis_pki::{Ca, CertificateParams, Usage};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::entries::{Reach, Target, mutating, validating};
use super::host::{Candidate, candidates, facts};
use super::probe::Probe;
use super::{Development, Flags};
use portcullis_listener::{Limits, Server, tls_config};
use portcullis_manifest::Installation;
use portcullis_webhook::Webhooks;

/// The most that the API server's clock may be behind ours.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A session that is ready to be served and put into the cluster.
pub(super) struct Session {
    cluster: Cluster,
    installation: Installation,
    reach: Reach,
    probe: Probe,
    server: Option<Server>,
    /// The TLS configuration; `None` for plain HTTP.
    tls: Option<Arc<ArcSwap<ServerConfig>>>,
    candidates: Vec<(Candidate, Target)>,
    listening: SocketAddr,
    expires: Timestamp,
}

/// The objects that were put into the cluster, for people.
pub(super) struct Opened {
    pub(super) expires: Timestamp,
    pub(super) listening: SocketAddr,
    pub(super) candidate: Candidate,
    pub(super) url: String,
    /// The configurations with their entries.
    pub(super) configurations: Vec<(String, Vec<Webhook>)>,
    /// Webhooks whose CEL rules are not put into the cluster.
    pub(super) without_rules: Vec<String>,
    /// CRDs that the operator converts, and that stay as they are.
    pub(super) not_converting: Vec<String>,
    /// Webhooks that no namespace selector narrows.
    pub(super) left_out: Vec<String>,
    /// Configurations of the installed operator.
    pub(super) installed: Vec<String>,
    pub(super) reach: Reach,
}

/// The unique name of a session.
pub(super) fn id(provider: &CryptoProvider) -> anyhow::Result<String> {
    let mut bytes = [0; 8];
    let filled = provider.secure_random.fill(&mut bytes);
    filled.map_err(|_| anyhow::anyhow!("cannot read random numbers from the system"))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

impl Session {
    /// Binds the listener and makes the certificate; the cluster is left alone.
    pub(super) async fn prepare(cluster: Cluster, development: &Development, flags: &Flags) -> anyhow::Result<Self> {
        let Development { installation, url, context, provider, .. } = development;
        let expires = cluster.me.expires.context("a session ends at some time")?;
        let hosts = match (&flags.public_url, &flags.host) {
            (Some(_), _) => Vec::new(),
            (None, Some(host)) => vec![Candidate::new(host, "as --host says")],
            (None, None) => candidates(&facts(context.clone(), url).await),
        };
        let address = SocketAddr::new(listen_on(&hosts), flags.port);
        let server = Server::bind(address, Limits::default())
            .await
            .with_context(|| format!("cannot listen on {address}; another --port may be free"))?;
        let listening = server.local_addr()?;
        let (tls, candidates) = if let Some(url) = &flags.public_url {
            let read = |file: &PathBuf| {
                std::fs::read_to_string(file).with_context(|| format!("cannot read --ca-file {}", file.display()))
            };
            let ca_pem = flags.ca_file.as_ref().map(read).transpose()?;
            (None, vec![(Candidate::new(url, "as --public-url says"), Target { url: url.clone(), ca_pem })])
        } else {
            ensure!(
                !hosts.is_empty(),
                "this machine has no address that the API server could reach; give --host ADDR or --public-url URL"
            );
            let (tls, ca_pem) = certificate(&hosts, &cluster.me.of, expires, Arc::clone(provider))?;
            let target = |host: Candidate| {
                let url = format!("https://{}:{}", host.in_url(), listening.port());
                (host, Target { url, ca_pem: Some(ca_pem.clone()) })
            };
            (Some(Arc::new(ArcSwap::from_pointee(tls))), hosts.into_iter().map(target).collect())
        };
        let mut namespaces = flags.only_namespaces.clone();
        if namespaces.is_empty() {
            namespaces.extend(installation.restricted_to.clone());
        }
        Ok(Self {
            reach: Reach { namespaces, fail: flags.fail },
            cluster,
            installation: installation.clone(),
            probe: Probe::default(),
            server: Some(server),
            tls,
            candidates,
            listening,
            expires,
        })
    }

    /// Serves these webhooks, and the probe, until `stop`.
    pub(super) fn serve(
        &mut self,
        webhooks: &Webhooks,
        stop: &CancellationToken,
    ) -> anyhow::Result<BoxFuture<'static, ()>> {
        let routes = Arc::new(webhooks.clone().validate(self.probe.webhook()).routes()?);
        let server = self.server.take().context("a session is served once")?;
        let (tls, stop) = (self.tls.clone(), stop.clone());
        Ok(Box::pin(async move {
            match tls {
                Some(tls) => server.serve_tls(tls, routes, stop).await,
                None => server.serve_plain(routes, stop).await,
            }
        }))
    }

    /// Finds out by which address the API server reaches us, and has it call us. Between its steps it looks whether it
    /// is to stop.
    pub(super) async fn open(&self, webhooks: &Webhooks, stop: &CancellationToken) -> anyhow::Result<Opened> {
        let Self { cluster, installation, reach, candidates, .. } = self;
        let name = |what: &str| format!("{}-dev-{}-{what}", cluster.me.of, cluster.me.owner);
        let going = || if stop.is_cancelled() { bail!("ended before it began") } else { Ok(()) };

        let targets: Vec<_> = candidates.iter().map(|(_, target)| target.clone()).collect();
        let reached = match self.probe.first_reached(cluster, &name("probe"), &targets, stop).await? {
            Ok(index) => index,
            Err(problems) => bail!("{}", unreachable(candidates, &problems)),
        };
        let (candidate, target) = &candidates[reached];
        cluster.remove().await?;

        let registered = webhooks.manifests()?.into_iter();
        let registered = registered.map(|webhook| webhook.with_overrides(&installation.overrides)).collect();
        let (entries, left_out) = reach.entries(registered, &installation.namespace)?;
        let mut configurations = Vec::new();
        let of_kind = |kind| entries.iter().filter(|entry| entry.kind == kind).cloned().collect::<Vec<_>>();
        if let Some(object) = mutating(&name("mutating"), &entries, target, &cluster.me) {
            going()?;
            cluster.put(&object).await?;
            let title = format!("MutatingWebhookConfiguration {}", name("mutating"));
            configurations.push((title, of_kind(portcullis_manifest::WebhookKind::Mutating)));
        }
        if let Some(object) = validating(&name("validating"), &entries, target, &cluster.me) {
            going()?;
            cluster.put(&object).await?;
            let title = format!("ValidatingWebhookConfiguration {}", name("validating"));
            configurations.push((title, of_kind(portcullis_manifest::WebhookKind::Validating)));
        }
        let with_rules = entries.iter().filter(|entry| !entry.cel_rules.is_empty());
        let not_converting = webhooks.conversions()?.into_iter().map(|conversion| conversion.crd).collect();
        let installed = cluster.installed(&installation.validating(), &installation.mutating()).await?;
        Ok(Opened {
            expires: self.expires,
            listening: self.listening,
            candidate: candidate.clone(),
            url: target.url.clone(),
            configurations,
            without_rules: with_rules.map(|entry| entry.name.clone()).collect(),
            not_converting,
            left_out,
            installed,
            reach: reach.clone(),
        })
    }
}

/// The address to listen on for these hosts; for a tunnel, there are none.
fn listen_on(hosts: &[Candidate]) -> IpAddr {
    let addresses: Vec<Option<IpAddr>> = hosts.iter().map(|host| host.host.parse().ok()).collect();
    if addresses.iter().all(|address| *address == Some(IpAddr::V6(Ipv6Addr::LOCALHOST))) && !addresses.is_empty() {
        return IpAddr::V6(Ipv6Addr::LOCALHOST);
    }
    if addresses.iter().all(|address| address.is_some_and(|address| address.is_loopback())) {
        return IpAddr::V4(Ipv4Addr::LOCALHOST);
    }
    if addresses.iter().flatten().any(IpAddr::is_ipv6) {
        // Both families, as far as the system has them.
        return IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    }
    IpAddr::V4(Ipv4Addr::UNSPECIFIED)
}

/// A certificate for all these hosts, under a CA whose key is forgotten at once.
fn certificate(
    hosts: &[Candidate],
    release: &str,
    expires: Timestamp,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<(ServerConfig, String)> {
    let from = Timestamp::now() - SKEW;
    let ca = Ca::generate(&format!("{release} development"), from, expires)?;
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    for Candidate { host, .. } in hosts {
        match host.parse() {
            Ok(address) => addresses.push(address),
            Err(_) => names.push(host.clone()),
        }
    }
    let pair = ca.issue(&CertificateParams {
        common_name: "portcullis dev",
        organizations: &[],
        dns_names: &names,
        ip_addresses: &addresses,
        not_before: from,
        not_after: expires,
        usage: Usage::Server,
    })?;
    let config = tls_config(provider, pair.cert_pem.as_bytes(), pair.key_pem.as_bytes())?;
    Ok((config, ca.cert_pem().to_owned()))
}

/// The answers of the API server to each try, and what can be done.
fn unreachable(candidates: &[(Candidate, Target)], problems: &[String]) -> String {
    let tried = candidates.iter().zip(problems).map(|((_, target), problem)| format!("{}: {problem}", target.url));
    format!(
        "the API server cannot call this machine: {}. Give --host with a name or address that it reaches, or \
         --public-url with a tunnel's URL",
        tried.collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_no_wider_than_the_hosts_ask_for() {
        for (hosts, expected) in [
            (&[][..], "127.0.0.1"),
            (&["127.0.0.1"], "127.0.0.1"),
            (&["::1"], "::1"),
            (&["127.0.0.1", "192.168.1.5"], "0.0.0.0"),
            (&["host.docker.internal"], "0.0.0.0"),
            (&["fd00::1", "192.168.1.5"], "::"),
        ] {
            let hosts: Vec<_> = hosts.iter().map(|host| Candidate::new(*host, "")).collect();
            assert_eq!(listen_on(&hosts).to_string(), expected, "{hosts:?}");
        }
    }

    #[test]
    fn no_two_sessions_have_the_same_name() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let (one, other) = (id(&provider).unwrap(), id(&provider).unwrap());
        assert!(one.len() == 16 && one != other, "{one} {other}");
    }
}
