//! The address that a request comes from.

use std::net::{IpAddr, SocketAddr};

use http::header::HeaderMap;
use mcp_runconfig::endpoint::IpNet;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The proxies before this one that are believed.
#[derive(Debug)]
pub(crate) struct TrustedProxies(pub(crate) Vec<IpNet>);

impl TrustedProxies {
    /// Returns the address of the client: the peer, or where that is trusted the last address in `X-Forwarded-For` that is not. Each proxy
    /// adds the address of its caller at the end, so all that stands before that address is a claim of the client.
    pub(crate) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        let mut client = peer;
        if !self.trusts(peer.ip()) {
            return peer;
        }
        let values = headers.get_all(X_FORWARDED_FOR).iter().rev();
        let entries = values.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
        for entry in entries {
            if !self.trusts(client.ip()) {
                break;
            }
            // A proxy that is trusted and names nobody counts for itself.
            let Some(address) = address(entry.trim()) else { break };
            client = SocketAddr::new(address, 0);
        }
        client
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address.to_canonical()))
    }
}

/// Reads an address, to which some proxies add a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().or_else(|_| text.parse().map(|socket: SocketAddr| socket.ip())).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_client_is_whoever_the_outermost_trusted_proxy_saw() {
        let trusted = TrustedProxies(["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()).into());
        for (peer, values, client) in [
            ("192.0.2.1:9", &["203.0.113.7"][..], "192.0.2.1:9"),
            ("10.0.0.1:9", &[], "10.0.0.1:9"),
            ("[::ffff:10.0.0.1]:9", &["203.0.113.7"], "203.0.113.7:0"),
            ("10.0.0.1:9", &["192.0.2.66, 203.0.113.7"], "203.0.113.7:0"),
            ("10.0.0.1:9", &["192.0.2.66", "203.0.113.7, 10.0.0.2"], "203.0.113.7:0"),
            ("10.0.0.1:9", &["10.0.0.3,10.0.0.2"], "10.0.0.3:0"),
            ("10.0.0.1:9", &["203.0.113.7:4711"], "203.0.113.7:0"),
            ("[fd00::1]:9", &["[2001:db8::1]:4711"], "[2001:db8::1]:0"),
            ("[fd00::1]:9", &["[2001:db8::1]"], "[2001:db8::1]:0"),
            ("10.0.0.1:9", &["203.0.113.7, unknown"], "10.0.0.1:9"),
            ("10.0.0.1:9", &["203.0.113.7,"], "10.0.0.1:9"),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(X_FORWARDED_FOR, HeaderValue::from_static(value));
            }
            assert_eq!(trusted.client(peer.parse().unwrap(), &headers), client.parse().unwrap(), "{peer} {values:?}");
        }
    }
}
