//! What several commands share: where `run` serves, and how the others print.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::ValueEnum;

/// Where `run` serves the webhooks.
pub(super) const BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);
/// Where `run` serves probes and metrics.
pub(super) const HEALTH_BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8081);

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Output {
    /// Human-readable text
    Text,
    /// One JSON object
    Json,
}
