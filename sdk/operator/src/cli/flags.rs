//! Flags that several commands share: the addresses that `run` serves at, and how the others print.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::ValueEnum;

use crate::options::BIND;

/// The default address of probes and metrics.
const HEALTH_BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8081);

/// The addresses that `run` serves at, and that `generate` makes the ports of the container from.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(super) struct ListenFlags {
    /// Address of the webhooks (HTTPS); 0.0.0.0 is every one, of IPv4 and of IPv6
    #[arg(long, default_value_t = BIND, value_name = "ADDR", value_parser = address)]
    pub(super) bind: SocketAddr,
    /// Address of /healthz, /readyz and /metrics (HTTP)
    #[arg(long, default_value_t = HEALTH_BIND, value_name = "ADDR", value_parser = address)]
    pub(super) health_bind: SocketAddr,
}

impl ListenFlags {
    /// Each address with its flag and its default.
    fn all(self) -> [(&'static str, SocketAddr, SocketAddr); 2] {
        [("--bind", self.bind, BIND), ("--health-bind", self.health_bind, HEALTH_BIND)]
    }

    /// The flags of `run` for the addresses that differ from the defaults.
    pub(super) fn arguments(self) -> Vec<String> {
        let given = self.all().into_iter().filter(|(_, address, default)| address != default);
        given.map(|(flag, address, _)| format!("{flag}={address}")).collect()
    }

    /// Refuses addresses that cannot be called in a Pod.
    pub(super) fn check_in_pod(self) -> Result<(), String> {
        for (flag, address, _) in self.all() {
            if address.port() == 0 {
                return Err(format!("{flag} {address}: give the port that the Service and the probes are to call"));
            }
            if address.ip().is_loopback() {
                return Err(format!(
                    "{flag} {address}: no caller outside of the Pod could reach it; give 0.0.0.0 or [::]"
                ));
            }
        }
        if self.bind.port() == self.health_bind.port() {
            let port = self.bind.port();
            return Err(format!("--bind and --health-bind have the port {port}; give another one to one of the two"));
        }
        Ok(())
    }
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "give an IP address and a port, as in 0.0.0.0:9443 or [::]:9443")
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Output {
    /// Human-readable text
    Text,
    /// One JSON object
    Json,
}
