//! The connection to one Redis: made when it is needed, used by all commands at once, made again when it breaks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use mcp_middleware::Secret;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::config::RedisConfig;
use crate::error::{ConfigError, RedisError};

/// The pause after the first attempt to connect that fails; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// A peer that is gone without a word shows after this and two more silences of the same length, also where no command is waiting. Networks of clusters
/// forget idle connections.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// One Redis server. Cheap to clone; clones share its connection.
#[derive(Clone, Debug)]
pub struct Redis(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: RedisConfig,
    address: Arc<str>,
    host: String,
    port: u16,
    provider: Arc<CryptoProvider>,
    current: ArcSwapOption<Live>,
    /// The error of the last attempt to connect, until one succeeds.
    down: ArcSwapOption<RedisError>,
    /// Held by the one that connects.
    attempts: Mutex<Attempts>,
}

/// A connection, and the task that reads and writes it.
struct Live {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("ended", &self.driver.is_finished()).finish_non_exhaustive()
    }
}

/// The attempts to connect since the last one that succeeded.
#[derive(Debug, Default)]
struct Attempts {
    failed: u32,
    /// The end of the pause after the last one.
    until: Option<Instant>,
}

/// A Lua script, which Redis runs as one step.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    /// The SHA-1 of the text, by which Redis finds it again.
    digest: String,
}

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text, digest: redis::Script::new(text).get_hash().to_owned() }
    }
}

/// Whether a command may be carried out twice: it is sent again when its connection breaks before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Yes,
    No,
}

impl Redis {
    /// A client of the server in `config`, which connects with the first command. It needs a Tokio runtime then.
    ///
    /// # Errors
    /// An address that is none. A file that cannot be read is an error of each command, until it can.
    pub fn new(config: RedisConfig, provider: &Arc<CryptoProvider>) -> Result<Self, ConfigError> {
        let (host, port) = config.host_and_port()?;
        Ok(Self(Arc::new(Inner {
            address: config.address.as_str().into(),
            host,
            port,
            provider: Arc::clone(provider),
            current: ArcSwapOption::empty(),
            down: ArcSwapOption::empty(),
            attempts: Mutex::default(),
            config,
        })))
    }

    /// The host and port, for messages.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// There was none: the server cannot be reached, does not let the client in, or has not answered in time.
    pub async fn ping(&self) -> Result<(), RedisError> {
        self.command::<String>(&redis::cmd("PING"), Repeat::Yes).await.map(drop)
    }

    /// Runs a command.
    pub(crate) async fn command<T: FromRedisValue>(&self, command: &Cmd, repeat: Repeat) -> Result<T, RedisError> {
        match self.0.once(command).await {
            Err(RedisError::Broken { .. }) if repeat == Repeat::Yes => self.0.once(command).await,
            answer => answer,
        }
    }

    /// Runs a script: by its digest, and by its text where the server does not know it.
    pub(crate) async fn script<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[String],
        repeat: Repeat,
    ) -> Result<T, RedisError> {
        let call = |how: &str, script: &str| {
            let mut command = redis::cmd(how);
            command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
            command
        };
        match self.command(&call("EVALSHA", &script.digest), repeat).await {
            Err(RedisError::Refused { code, .. }) if code == "NOSCRIPT" => {
                self.command(&call("EVAL", script.text), repeat).await
            }
            answer => answer,
        }
    }
}

impl Inner {
    async fn once<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        let live = self.live().await?;
        let answer = command.query_async(&mut live.connection.clone()).await;
        answer.map_err(|error| {
            let error = self.error(&error);
            if error.ends_connection() {
                // Another command may have done so already, and a new connection be there.
                self.current.compare_and_swap(&live, None);
            }
            error
        })
    }

    /// The connection that is open, or a new one. One caller connects, and the others wait for it, but for those that come while Redis is down: an
    /// attempt at a silent one takes long.
    async fn live(&self) -> Result<Arc<Live>, RedisError> {
        let open = || self.current.load_full().filter(|live| !live.driver.is_finished());
        let down = || self.down.load().as_deref().map_or(Ok(()), |error| Err(error.clone()));
        if let Some(live) = open() {
            return Ok(live);
        }
        let mut attempts = if let Ok(attempts) = self.attempts.try_lock() {
            attempts
        } else {
            down()?;
            let attempts = self.attempts.lock().await;
            // The attempt that it has waited for failed.
            down()?;
            attempts
        };
        if let Some(live) = open() {
            return Ok(live);
        }
        if attempts.until.is_some_and(|until| Instant::now() < until) {
            down()?;
        }
        let limit = self.config.deadlines.connect;
        let connected = timeout(limit, self.connect()).await;
        match connected.unwrap_or_else(|_| Err(self.unreachable(format!("no connection within {limit:?}")))) {
            Ok(live) => {
                if attempts.failed > 0 {
                    tracing::info!(address = &*self.address, attempts = attempts.failed, "Redis can be reached again");
                }
                *attempts = Attempts::default();
                self.down.store(None);
                let live = Arc::new(live);
                self.current.store(Some(Arc::clone(&live)));
                Ok(live)
            }
            Err(error) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << attempts.failed.min(16)).min(self.config.deadlines.pause);
                // The users of Redis tell of commands that fail, and nobody does before the first one.
                if down().as_ref().err() == Some(&error) {
                    tracing::debug!(%error, ?pause, "cannot connect to Redis; commands fail until the next attempt");
                } else {
                    tracing::warn!(%error, "cannot connect to Redis; commands fail until it can be reached again");
                }
                attempts.failed += 1;
                attempts.until = Some(Instant::now() + pause);
                self.down.store(Some(Arc::new(error.clone())));
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Live, RedisError> {
        let fail = |error: &dyn std::fmt::Display| self.unreachable(error.to_string());
        // Both are read now: they may have been replaced since the last connection.
        let password = self.config.password.read().map_err(|problem| self.unreachable(problem))?;
        let tls = self.config.tls.as_ref().map(|tls| tls.config(&self.provider)).transpose();
        let tls = tls.map_err(|error| self.unreachable(format!("a CA bundle {error}")))?;
        let stream = TcpStream::connect((&*self.host, self.port)).await.map_err(|error| fail(&error))?;
        // Each command is small, and something waits for it.
        stream.set_nodelay(true).map_err(|error| fail(&error))?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(2);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(|error| fail(&error))?;
        let Some(tls) = tls else { return self.log_in(stream, password).await };
        let name = ServerName::try_from(self.host.clone()).map_err(|error| fail(&error))?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
        self.log_in(stream.map_err(|error| self.unreachable(format!("TLS: {error}")))?, password).await
    }

    /// Makes a connection ready for commands. It is none before Redis has answered on it.
    async fn log_in<S>(&self, stream: S, password: Option<Secret>) -> Result<Live, RedisError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let fail = |error: redis::RedisError| match self.error(&error) {
            error @ (RedisError::Refused { .. } | RedisError::Unexpected { .. }) => error,
            _ => self.unreachable(error.to_string()),
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.config.deadlines.answer));
        // The client would hide the text of an error, so it logs in no earlier than this does.
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&login, stream, config).await.map_err(fail)?;
        // It ends with the connection, or with the last clone of it.
        let live = Live { connection, driver: tokio::spawn(driver) };
        let auth = password.map(|password| redis::cmd("AUTH").arg(password.reveal()).take());
        let select = (self.config.database > 0).then(|| redis::cmd("SELECT").arg(self.config.database).take());
        for command in auth.into_iter().chain(select).chain([redis::cmd("PING")]) {
            command.query_async::<()>(&mut live.connection.clone()).await.map_err(fail)?;
        }
        Ok(live)
    }

    fn error(&self, error: &redis::RedisError) -> RedisError {
        RedisError::of(&self.address, self.config.deadlines.answer, error)
    }

    fn unreachable(&self, problem: String) -> RedisError {
        RedisError::Unreachable { address: Arc::clone(&self.address), problem }
    }
}
