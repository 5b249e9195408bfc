//! The address of a Redis, for those who write documents and those who use them.

use std::net::Ipv6Addr;

/// The host and port in the address of a Redis: `redis:6379`, `10.0.0.1:6379` or `[2001:db8::1]:6379`. None where it is no such address.
pub fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let is_name =
        |host: &str| !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c));
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').filter(|host| host.parse::<Ipv6Addr>().is_ok())?,
        None => Some(host).filter(|host| is_name(host))?,
    };
    let port = Some(port).filter(|port| port.bytes().all(|c| c.is_ascii_digit()))?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some((host, port))
}

/// The problem with an address that has no [host and port](host_and_port). One that may hold a password is not repeated.
pub fn address_problem(address: &str) -> String {
    if address.contains('@') {
        "the address, which is not shown as it may hold a password, is no host and port".to_owned()
    } else {
        format!("{address:?} is no host and port")
    }
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
            ("redis-0.redis.team.svc.cluster.local.:6379", Some(("redis-0.redis.team.svc.cluster.local.", 6379))),
            ("redis-0,redis-1:6379", None),
            ("redis:+6379", None),
            ("[redis]:6379", None),
            ("redis\n:6379", None),
        ] {
            assert_eq!(host_and_port(address), expected, "{address}");
        }
    }

    #[test]
    fn an_address_that_may_hold_a_password_is_not_repeated() {
        assert_eq!(address_problem("redis"), "\"redis\" is no host and port");
        assert!(!address_problem("redis://:hunter2@redis:6379").contains("hunter2"));
    }
}
