//! The settings by which one Redis is reached.

use std::time::Duration;

use mcp_http::client::ClientTls;
use mcp_middleware::SecretSource;
use mcp_runconfig::host_and_port;

use crate::error::ConfigError;

/// A Redis and the way to it.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// Its host and port.
    pub address: String,
    /// The number of the database. Default: 0.
    pub database: u32,
    /// Its password. Default: none.
    pub password: SecretSource,
    /// The authorities to trust, where the connection is one of TLS. Their files are read for each connection. Default: no TLS.
    pub tls: Option<ClientTls>,
    /// The limits of every wait.
    pub deadlines: Deadlines,
}

impl RedisConfig {
    /// The Redis at `address`, without TLS and without a password.
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            database: 0,
            password: SecretSource::None,
            tls: None,
            deadlines: Deadlines::default(),
        }
    }

    /// The host and port in the address.
    pub(crate) fn host_and_port(&self) -> Result<(String, u16), ConfigError> {
        let bad = |problem| ConfigError::of("address", problem);
        let (host, port) = host_and_port(&self.address).map_err(bad)?;
        Ok((host.to_owned(), port))
    }
}

/// The time that Redis may take. A command that has to connect first takes no longer than both, and one that is sent again twice that.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For a connection with TLS and login. Default: 2 s.
    pub connect: Duration,
    /// For the answer to a command. Default: 3 s.
    pub answer: Duration,
    /// The longest pause between attempts to connect: commands fail at once meanwhile. Default: 2 s.
    pub pause: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { connect: Duration::from_secs(2), answer: Duration::from_secs(3), pause: Duration::from_secs(2) }
    }
}

#[cfg(test)]
mod tests {
    use mcp_middleware::Secret;

    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let config =
            RedisConfig { password: SecretSource::Given(Secret::new("hunter2")), ..RedisConfig::new("redis:6379") };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
