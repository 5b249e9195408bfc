//! The clients of one proxy, by the servers that its document names.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mcp_http::client::ClientTls;
use mcp_http::file::rooted;
use mcp_middleware::SecretSource;
use mcp_runconfig::{SessionRedis, SessionRedisTls};
use rustls::crypto::CryptoProvider;

use crate::config::RedisConfig;
use crate::connection::Redis;
use crate::error::ConfigError;

/// The member with the authorities of a Redis.
pub(crate) const CA_FILE: &str = "tls.caCertFile";

/// The servers that a document names, with one client for each, however many members name it. Clones share the clients.
#[derive(Clone, Debug)]
pub struct Clients(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    password: SecretSource,
    files_root: Option<PathBuf>,
    provider: Arc<CryptoProvider>,
    made: Mutex<Vec<(SessionRedis, Redis)>>,
}

impl Clients {
    /// Clients that log in with `password`, and find the files of the document below `files_root`.
    pub fn new(password: SecretSource, files_root: Option<&Path>, provider: Arc<CryptoProvider>) -> Self {
        let files_root = files_root.map(Path::to_owned);
        Self(Arc::new(Inner { password, files_root, provider, made: Mutex::default() }))
    }

    /// The client of the server in `settings`, whatever their prefix of keys. It connects with its first command.
    ///
    /// # Errors
    /// The member that is none.
    pub fn of(&self, settings: &SessionRedis) -> Result<Redis, ConfigError> {
        let server = SessionRedis { key_prefix: String::new(), ..settings.clone() };
        let mut made = self.0.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, redis)) = made.iter().find(|(known, _)| *known == server) {
            return Ok(redis.clone());
        }
        let config = RedisConfig {
            database: server.db,
            password: self.0.password.clone(),
            tls: server.tls.as_ref().map(|tls| self.tls(tls)).transpose()?,
            ..RedisConfig::new(&server.address)
        };
        let redis = Redis::new(config, &self.0.provider)?;
        self.warn(&server);
        made.push((server, redis.clone()));
        Ok(redis)
    }

    /// The clients that there are.
    pub fn all(&self) -> Vec<Redis> {
        let made = self.0.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.iter().map(|(_, redis)| redis.clone()).collect()
    }

    fn tls(&self, tls: &SessionRedisTls) -> Result<ClientTls, ConfigError> {
        let file = &tls.ca_cert_file;
        let no_path =
            || ConfigError::new(CA_FILE, format!("{file:?} is no absolute path"), "write one that begins with /");
        let path = || rooted(file, self.0.files_root.as_deref()).ok_or_else(no_path);
        let ca = if file.is_empty() { None } else { Some(path()?) };
        Ok(ClientTls { ca, insecure: tls.insecure_skip_verify, ..ClientTls::default() })
    }

    fn warn(&self, server: &SessionRedis) {
        let address = &*server.address;
        match &self.0.password {
            SecretSource::Given(secret) if secret.reveal().is_empty() => {
                tracing::warn!(address, "the password of Redis is set and empty, so none is sent");
            }
            SecretSource::None => {}
            _ if server.tls.is_none() => {
                tracing::warn!(
                    address,
                    "Redis is used without TLS: its password and all sessions can be read on the way"
                );
            }
            _ => {}
        }
        if server.tls.as_ref().is_some_and(|tls| tls.insecure_skip_verify) {
            tracing::warn!(
                address,
                "the certificate of Redis is not checked: its password and all sessions go to whoever answers"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(address: &str, key_prefix: &str, tls: Option<&str>) -> SessionRedis {
        let tls = tls.map(|file| SessionRedisTls { ca_cert_file: file.to_owned(), ..SessionRedisTls::default() });
        SessionRedis { address: address.to_owned(), key_prefix: key_prefix.to_owned(), tls, ..SessionRedis::default() }
    }

    fn clients() -> Clients {
        Clients::new(SecretSource::None, None, Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
    }

    #[test]
    fn one_server_has_one_client_whatever_the_prefix_of_keys() {
        let clients = clients();
        for (server, count) in [
            (settings("a:1", "x:", None), 1),
            (settings("a:1", "", None), 1),
            (settings("b:1", "", None), 2),
            (settings("a:1", "", Some("/ca.crt")), 3),
            (SessionRedis { db: 1, ..settings("a:1", "", None) }, 4),
            (settings("a:1", "y:", Some("/ca.crt")), 4),
        ] {
            clients.of(&server).unwrap();
            assert_eq!(clients.all().len(), count, "{server:?}");
        }
    }

    #[test]
    fn an_error_names_the_member() {
        for (server, member) in
            [(settings("a", "", None), "address: "), (settings("a:1", "", Some("ca.crt")), "tls.caCertFile: ")]
        {
            let error = clients().of(&server).unwrap_err().to_string();
            assert!(error.starts_with(member), "{error}");
        }
    }
}
