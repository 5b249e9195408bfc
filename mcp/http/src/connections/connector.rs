//! Connectors open connections: to the server itself, or within a tunnel of the egress proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection as _, HttpConnector, HttpInfo};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use mcp_runconfig::endpoint::EndpointPolicy;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::Service as _;

use super::Silence;
use super::guard::{Guard, Guarded};
use crate::body::BoxError;

#[derive(Clone, Debug)]
pub(super) enum Connector {
    Plain(HttpConnector<Guarded<GaiResolver>>),
    Tls(HttpsConnector<HttpConnector<Guarded<GaiResolver>>>),
    /// TLS to the server within a tunnel of the egress proxy.
    Tunnel(HttpsConnector<Tunnel<HttpConnector>>),
}

pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

impl Connector {
    /// One for `server`, with the resolver and the guard that it asks.
    pub(super) fn new(
        server: &Uri,
        tls: Option<ClientConfig>,
        policy: Option<Arc<EndpointPolicy>>,
        timeout: Option<Duration>,
        silence: Silence,
    ) -> (Self, GaiResolver, Guard) {
        let resolver = GaiResolver::new();
        let egress = policy.as_ref().and_then(|policy| policy.egress.as_ref()).and_then(|egress| {
            let matcher = Matcher::builder().https(egress.proxy.to_string()).no(egress.direct.as_str()).build();
            matcher.intercept(server).map(|_| egress.proxy.clone())
        });
        let guard = Guard(policy);
        let guarded = Guarded::new(resolver.clone(), guard.clone());
        let connector = match (tls, egress) {
            (Some(tls), Some(proxy)) => {
                let to_proxy = connector(resolver.clone(), timeout, silence);
                Self::Tunnel(https(Tunnel::new(proxy, to_proxy), tls))
            }
            (Some(tls), None) => Self::Tls(https(connector(guarded, timeout, silence), tls)),
            (None, _) => Self::Plain(connector(guarded, timeout, silence)),
        };
        (connector, resolver, guard)
    }

    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self, Self::Tunnel(_))
    }

    pub(super) async fn connect(self, to: Uri) -> Result<Stream, BoxError> {
        match self {
            Self::Plain(mut connector) => connector.call(to).await.map(MaybeHttpsStream::Http).map_err(Into::into),
            Self::Tls(mut connector) => connector.call(to).await,
            Self::Tunnel(mut connector) => connector.call(to).await,
        }
    }
}

pub(super) fn peer(stream: &Stream) -> Option<SocketAddr> {
    let mut known = Extensions::new();
    Connected::get_extras(&stream.connected(), &mut known);
    known.get::<HttpInfo>().map(HttpInfo::remote_addr)
}

/// TLS over the connections of `under`. The builder of this type would refuse a configuration that names protocols.
fn https<C>(under: C, tls: ClientConfig) -> HttpsConnector<C> {
    let mut connector = HttpsConnector::from((under, tls));
    connector.enforce_https();
    connector
}

fn connector<R>(resolver: R, timeout: Option<Duration>, silence: Silence) -> HttpConnector<R> {
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(timeout);
    // Streams may be silent for hours; this is how a dead server is noticed.
    connector.set_keepalive(Some(silence.asked_after));
    connector.set_keepalive_interval(Some(silence.asked_every));
    connector.set_keepalive_retries(Some(silence.questions));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(silence.untaken));
    connector
}
