//! The addresses by which an API server may reach this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

/// The longest time that resolving a name may take.
const RESOLVE: Duration = Duration::from_secs(5);
/// An address of a network that is documentation's own (RFC 5737): nothing is sent there, only the route is asked for.
const ANYWHERE: &str = "192.0.2.1";

/// The facts that a guess is made from.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Name of the kubeconfig's context. Local clusters are known by it.
    pub(super) context: String,
    /// This machine's address on the route to the API server.
    pub(super) towards_server: Option<IpAddr>,
    /// This machine's address on the route to everywhere.
    pub(super) towards_anywhere: Option<IpAddr>,
    /// Whether this is Linux, where containers run on this machine, and not in a virtual machine on it.
    pub(super) linux: bool,
}

/// A name or address that the API server may reach this machine by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) host: String,
    /// Its origin, for people.
    pub(super) why: &'static str,
}

impl Candidate {
    pub(super) fn new(host: impl Into<String>, why: &'static str) -> Self {
        Self { host: host.into(), why }
    }

    /// The host as it stands in a URL.
    pub(super) fn in_url(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

/// The candidates, the likeliest first. Which of them it is, the API server is asked.
pub(super) fn candidates(facts: &Facts) -> Vec<Candidate> {
    let Facts { context, towards_server, towards_anywhere, linux } = facts;
    let known = |name: &str| context == name || context.starts_with(&format!("{name}-"));
    let docker = (!linux).then(|| Candidate::new("host.docker.internal", "Docker's name for this machine"));
    let mut found = Vec::new();
    if known("k3d") {
        found.push(Candidate::new("host.k3d.internal", "k3d's name for this machine"));
    } else if known("minikube") {
        found.push(Candidate::new("host.minikube.internal", "minikube's name for this machine"));
    } else if known("docker-desktop") {
        found.push(Candidate::new("host.docker.internal", "Docker's name for this machine"));
    } else if known("kind") {
        found.extend(docker.clone());
    }
    if let Some(address) = towards_server {
        // An API server behind a loopback port is here, or in a container, or at the end of a tunnel.
        let why = "the address of this machine on the route to the API server";
        found.push(Candidate::new(address.to_string(), why));
    }
    if let Some(address) = towards_anywhere {
        found.push(Candidate::new(address.to_string(), "an address of this machine"));
    }
    if towards_server.is_some_and(|address| address.is_loopback()) {
        found.extend(docker);
    }
    let mut unique: Vec<Candidate> = Vec::new();
    for candidate in found {
        if unique.iter().all(|other| other.host != candidate.host) {
            unique.push(candidate);
        }
    }
    unique
}

/// Looks at the routes of this machine.
pub(super) async fn facts(context: String, server: &http::Uri) -> Facts {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(443);
    Facts {
        context,
        towards_server: local_address(host, port).await,
        towards_anywhere: local_address(ANYWHERE, port).await.filter(|address| !address.is_loopback()),
        linux: cfg!(target_os = "linux"),
    }
}

/// The address from which this machine would send to that one. A datagram socket is connected; nothing is sent.
async fn local_address(host: &str, port: u16) -> Option<IpAddr> {
    let mut addresses = timeout(RESOLVE, lookup_host((host, port))).await.ok()?.ok()?;
    let remote = addresses.next()?;
    let any = if remote.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::from([0_u16; 8]) };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await.ok()?;
    socket.connect(remote).await.ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// A host without scheme and port: what `--host` takes.
pub(super) fn host(text: &str) -> Result<String, &'static str> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<IpAddr>().is_ok() || portcullis_manifest::names::is_subdomain(&text.to_ascii_lowercase()) {
        return Ok(bare.to_ascii_lowercase());
    }
    Err("give an IP address or a DNS name, without scheme and port (--port has the port)")
}

/// `https://host[:port]`: what `--public-url` takes. Returned without a slash at the end.
pub(super) fn public_url(text: &str) -> Result<String, &'static str> {
    let Ok(url) = text.parse::<http::Uri>() else { return Err("this is not a URL") };
    if url.scheme_str() != Some("https") {
        return Err("API servers call webhooks over HTTPS alone: give the tunnel's https:// URL");
    }
    let Some(authority) = url.authority().filter(|authority| !authority.as_str().contains('@')) else {
        return Err("the URL needs a host, and no user");
    };
    // A port that is no number up to 65535 is kept as text, and is none.
    let written = authority.as_str().strip_prefix(authority.host()).is_some_and(|rest| !rest.is_empty());
    if written && authority.port_u16().is_none_or(|port| port == 0) {
        return Err("the port is a number from 1 to 65535");
    }
    if !matches!(url.path(), "/" | "") || url.query().is_some() || text.contains('#') {
        return Err("give the URL without path and query: the webhooks have paths of their own");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(context: &str, server: &str, anywhere: &str, linux: bool) -> Vec<String> {
        let facts = Facts {
            context: context.to_owned(),
            towards_server: server.parse().ok(),
            towards_anywhere: anywhere.parse().ok(),
            linux,
        };
        candidates(&facts).into_iter().map(|candidate| candidate.host).collect()
    }

    // K6
    #[test]
    fn local_clusters_are_known_by_context_and_others_by_route() {
        let (lo, lan) = ("127.0.0.1", "192.168.1.5");
        for (context, server, linux, expected) in [
            // A server in the same network, or at the end of a VPN.
            ("prod", "10.8.0.7", true, &["10.8.0.7", lan][..]),
            ("prod", lan, true, &[lan]),
            // Here, in a container with a published port, or at the end of a tunnel.
            ("anything", lo, true, &[lo, lan]),
            ("anything", lo, false, &[lo, lan, "host.docker.internal"]),
            ("kind-a", lo, true, &[lo, lan]),
            ("kind-a", lo, false, &["host.docker.internal", lo, lan]),
            ("k3d-a", lo, true, &["host.k3d.internal", lo, lan]),
            ("minikube", "192.168.49.1", true, &["host.minikube.internal", "192.168.49.1", lan]),
            ("docker-desktop", lo, false, &["host.docker.internal", lo, lan]),
            // A name that only looks alike.
            ("kinder", lo, false, &[lo, lan, "host.docker.internal"]),
        ] {
            assert_eq!(hosts(context, server, lan, linux), expected, "{context} {server} {linux}");
        }
        assert_eq!(hosts("prod", "", "", true), [""; 0], "without a route there is nothing to guess");
    }

    #[test]
    fn unreachable_hosts_and_urls_are_refused_with_the_fix() {
        for (text, expected) in [
            ("192.168.1.5", Some("192.168.1.5")),
            ("[fd00::1]", Some("fd00::1")),
            ("fd00::1", Some("fd00::1")),
            ("Laptop.example", Some("laptop.example")),
            ("https://a", None),
            ("a:9443", None),
            ("", None),
        ] {
            assert_eq!(host(text).ok().as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("https://abc.tunnel.example", Some("https://abc.tunnel.example")),
            ("https://abc.tunnel.example:8443/", Some("https://abc.tunnel.example:8443")),
            ("http://abc.tunnel.example", None),
            ("https://abc.tunnel.example/path", None),
            ("https://user@abc.tunnel.example", None),
            ("https://abc.tunnel.example?x=1", None),
            ("https://abc.tunnel.example#x", None),
            ("https://abc.tunnel.example:0", None),
            ("https://abc.tunnel.example:99999", None),
            ("https://[fd00::1]:8443", Some("https://[fd00::1]:8443")),
            ("https://[fd00::1]", Some("https://[fd00::1]")),
            ("abc", None),
            ("", None),
        ] {
            assert_eq!(public_url(text).ok().as_deref(), expected, "{text}");
        }
        assert_eq!(Candidate::new("fd00::1", "").in_url(), "[fd00::1]");
    }

    #[tokio::test]
    async fn the_route_to_a_local_server_begins_at_loopback() {
        let facts = facts("any".to_owned(), &"https://127.0.0.1:6443".parse().unwrap()).await;
        assert_eq!(facts.towards_server, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
