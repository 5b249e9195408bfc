//! The address of a Redis, for those who write documents and those who use them.

/// The host and port in the address of a Redis: `redis:6379`, `10.0.0.1:6379` or `[2001:db8::1]:6379`. None where it is no such address.
pub fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?,
        None => Some(host).filter(|host| !host.contains(':'))?,
    };
    let named = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/@".contains(c));
    let port = port.parse().ok().filter(|port| *port > 0)?;
    named.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (address, expected) in [
            ("redis:6379", Some(("redis", 6379))),
            ("10.0.0.1:1", Some(("10.0.0.1", 1))),
            ("[2001:db8::1]:6379", Some(("2001:db8::1", 6379))),
            ("redis", None),
            ("redis:0", None),
            ("redis:70000", None),
            (":6379", None),
            ("2001:db8::1:6379", None),
            ("redis://redis:6379", None),
            ("user@redis:6379", None),
        ] {
            assert_eq!(host_and_port(address), expected, "{address}");
        }
    }
}
