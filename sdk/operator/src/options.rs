//! The settings of a running operator.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use portcullis_lease::{ScopeTiming, Timing};
use portcullis_manifest::{Installation, Switch};
use rustls::crypto::CryptoProvider;

/// The default address of webhooks.
pub(super) const BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);
/// The default time for which webhooks are served after a stop was requested.
const DRAIN_DELAY: Duration = Duration::from_secs(5);

/// Settings of an operator that runs inside of another process. The defaults are those of the flags of `run`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// The installation: names, Service, source of certificates, restriction to a namespace
    /// ([`Operator::installation`](super::Operator::installation)).
    pub installation: Installation,
    /// Address of the webhooks (HTTPS); by default `0.0.0.0:9443`, which is every address of IPv4 and of IPv6.
    pub bind: SocketAddr,
    /// Time to keep serving webhooks after the stop was requested, while callers learn of it; 5 s by default, at most
    /// 15 s.
    pub drain_delay: Duration,
    /// Whether replicas elect a leader, which alone runs the controllers. A restricted operator always elects one.
    pub leader_elect: Switch,
    /// Name of this replica in its Leases; the release's by default.
    pub identity: Option<String>,
    /// Bytes of the process's memory that the operator may use
    /// ([`Webhooks::memory_limit`](portcullis_webhook::Webhooks::memory_limit)); not limited by default.
    pub memory_limit: Option<usize>,
    /// The crypto provider for TLS; rustls' aws-lc-rs by default. It is not installed for the process.
    pub provider: Arc<CryptoProvider>,
    pub(super) lease_timing: Option<LeaseTiming>,
}

impl EmbedOptions {
    /// The default settings for this installation.
    pub fn new(installation: Installation) -> Self {
        Self {
            installation,
            bind: BIND,
            drain_delay: DRAIN_DELAY,
            leader_elect: Switch::default(),
            identity: None,
            memory_limit: None,
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            lease_timing: None,
        }
    }
}

/// The durations of all leases of one process. All operators of a cluster keep to the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTiming {
    pub(super) leader: Timing,
    pub(super) scope: Timing,
    pub(super) watch: ScopeTiming,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self { leader: Timing::LEADER, scope: Timing::SCOPE, watch: ScopeTiming::DEFAULT }
    }
}
