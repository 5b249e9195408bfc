//! The address of a Redis and its keys of sessions, for those who write documents and those who use them.

/// The host and port in the address of a Redis: `redis:6379`, `10.0.0.1:6379` or `[2001:db8::1]:6379`.
///
/// # Errors
/// It is no such address. The sentence does not quote one with an `@`, before which a password may stand.
pub fn host_and_port(address: &str) -> Result<(&str, u16), String> {
    parse(address).ok_or_else(|| {
        let problem = if address.contains('@') {
            "has more than a host and a port".to_owned()
        } else {
            format!("{address:?} is no host and port")
        };
        format!("{problem}; write one such as redis.example.svc:6379")
    })
}

/// The problem with `prefix` as the beginning of each key, if there is one.
pub fn key_prefix_problem(prefix: &str) -> Option<String> {
    (!prefix.ends_with(':')).then(|| {
        let fix = format!("{prefix}:");
        format!("{prefix:?} must end with a colon, or the keys of two prefixes can be equal; write {fix:?}")
    })
}

fn parse(address: &str) -> Option<(&str, u16)> {
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
            assert_eq!(host_and_port(address).ok(), expected, "{address}");
        }
    }

    #[test]
    fn a_password_before_the_host_is_not_quoted() {
        for address in ["redis://:hunter2@redis:6379", "user:hunter2@redis:6379"] {
            let problem = host_and_port(address).unwrap_err();
            assert!(problem.starts_with("has more than a host and a port; write") && !problem.contains("hunter2"));
        }
    }
}
