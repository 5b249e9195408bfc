//! The address of a Redis and its keys of sessions, for those who write documents and those who use them.

use std::net::Ipv6Addr;

/// A problem with a setting of Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {fix}")]
pub struct RedisProblem {
    /// The problem, without the setting's name.
    pub problem: String,
    /// The way to correct it.
    pub fix: String,
}

/// The host and port in the address of a Redis: `redis:6379`, `10.0.0.1:6379` or `[2001:db8::1]:6379`.
///
/// # Errors
/// It is no such address. One with an `@` is not quoted, as a password may stand before that.
pub fn host_and_port(address: &str) -> Result<(&str, u16), RedisProblem> {
    parse(address).ok_or_else(|| RedisProblem {
        problem: if address.contains('@') {
            "the address, which is not shown as it may hold a password, is no host and port".to_owned()
        } else {
            format!("{address:?} is no host and port")
        },
        fix: "write one such as redis.example.svc:6379".to_owned(),
    })
}

/// The problem with `prefix` as the beginning of each key, if there is one.
pub fn key_prefix_problem(prefix: &str) -> Option<RedisProblem> {
    (!prefix.ends_with(':')).then(|| RedisProblem {
        problem: format!("{prefix:?} must end with a colon, or the keys of two prefixes can be equal"),
        fix: format!("write {:?}", format!("{prefix}:")),
    })
}

fn parse(address: &str) -> Option<(&str, u16)> {
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
            assert_eq!(host_and_port(address).ok(), expected, "{address}");
        }
    }

    #[test]
    fn a_password_before_the_host_is_not_quoted() {
        for address in ["redis://:hunter2@redis:6379", "user:hunter2@redis:6379"] {
            let problem = host_and_port(address).unwrap_err().to_string();
            assert!(problem.contains("is no host and port; write") && !problem.contains("hunter2"), "{problem}");
        }
    }
}
