//! The client that a request counts for without a login.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The network that a request from `peer` counts for: an IPv4 address, or the /64 of an IPv6 address, of which one host
/// has all addresses. All requests without a peer count together.
pub fn client_network(peer: Option<SocketAddr>) -> IpAddr {
    match peer.map(|peer| peer.ip().to_canonical()) {
        Some(IpAddr::V6(address)) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        Some(address @ IpAddr::V4(_)) => address,
        None => Ipv4Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_is_one_client_whatever_address_it_takes() {
        let network = |address: &str| client_network(Some(SocketAddr::new(address.parse().unwrap(), 4711)));
        for (one, other, same) in [
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
        ] {
            assert_eq!(network(one) == network(other), same, "{one} {other}");
        }
        assert_ne!(network("10.0.0.1"), client_network(None));
    }
}
