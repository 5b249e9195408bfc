//! Sessions in Redis, for all replicas of a proxy.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use mcp_middleware::Metrics;
use mcp_runconfig::key_prefix_problem;
use mcp_store::{Client, Limits, MemorySessions, Principal, Removed, Reply, SessionRecord, SessionStore, StoreError};

use crate::connection::{Redis, Repeat, Script};
use crate::envelope::{BINDING, backend_url, decode, encode, key_id};
use crate::error::{ConfigError, RedisError};
use crate::failures::Failures;

/// The script of this name, behind the function that all of them find a session by.
macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(include_str!("scripts/find.lua"), include_str!(concat!("scripts/", $name, ".lua"))))
    };
}

static LOAD: LazyLock<Script> = LazyLock::new(|| script!("load"));
static CLAIM: LazyLock<Script> = LazyLock::new(|| script!("claim"));
static REPLACE: LazyLock<Script> = LazyLock::new(|| script!("replace"));
static REMOVE: LazyLock<Script> = LazyLock::new(|| script!("remove"));

/// The time between two lines of the log about operations that fail.
const QUIET: Duration = Duration::from_secs(10);

/// The keys of a [`RedisSessions`], and its limits.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The beginning of each key, with a colon at its end. Default: `thv:proxy:session:`.
    pub key_prefix: String,
    /// The time that a session lives without being used.
    pub ttl: Duration,
    /// The sessions that this process may have opened in Redis at a time. Default: 10,000.
    pub max_sessions: usize,
}

impl SessionOptions {
    /// The defaults, for sessions that live for `ttl` without being used.
    pub fn new(ttl: Duration) -> Self {
        let max_sessions = Limits::new(ttl).max_sessions;
        Self { key_prefix: "thv:proxy:session:".to_owned(), ttl, max_sessions }
    }
}

/// The sessions of all proxies that use one Redis and one prefix.
///
/// Each operation is one command, but for the insertion of an id that Redis has. Redis forgets a session that nobody uses.
///
/// The bound on sessions, and its fairness between clients, are those of [`MemorySessions`], on the sessions that this process opens: a client
/// that opens without end loses its own, also where another replica uses them.
#[derive(Debug)]
pub struct RedisSessions {
    redis: Redis,
    options: SessionOptions,
    /// The ids of the sessions that were opened here, and for whom.
    opened: MemorySessions,
    failures: Failures,
}

impl RedisSessions {
    /// The store in `redis`.
    ///
    /// # Errors
    /// A prefix without a colon at its end.
    pub fn new(redis: Redis, options: SessionOptions) -> Result<Self, ConfigError> {
        if let Some(problem) = key_prefix_problem(&options.key_prefix) {
            return Err(ConfigError::of("key_prefix", problem));
        }
        let limits = Limits { max_sessions: options.max_sessions, ..Limits::new(options.ttl) };
        Ok(Self { redis, options, opened: MemorySessions::new(limits), failures: Failures::told_each(QUIET) })
    }

    /// Counts failures in `metrics`.
    pub fn register(&self, metrics: &Metrics) {
        let help = "Operations on sessions that Redis did not carry out, by the kind of its error";
        self.failures.register(metrics, "session_errors", help);
    }

    fn failed(&self, error: RedisError) -> StoreError {
        self.failures.note(&error, "sessions in Redis are unavailable");
        StoreError::new(error)
    }

    fn key(&self, id: &str) -> String {
        format!("{}{}", self.options.key_prefix, key_id(id))
    }

    fn ttl_millis(&self) -> String {
        self.options.ttl.as_millis().max(1).to_string()
    }

    /// Inserts a record; `false` where somebody else has the id.
    async fn put(&self, record: &SessionRecord) -> Result<bool, StoreError> {
        let (key, value) = (self.key(&record.id), written(record)?);
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&value).arg("PX").arg(self.ttl_millis()).arg("NX");
        let inserted: Option<String> =
            self.redis.command(&set, Repeat::Yes).await.map_err(|error| self.failed(error))?;
        if inserted.is_some() {
            return Ok(true);
        }
        // The server may give out an id again, to the same one.
        let arguments = [BINDING.to_owned(), record.principal.as_str().to_owned(), value, self.ttl_millis()];
        let claimed: i64 =
            self.redis.script(&CLAIM, &[&key], &arguments, Repeat::Yes).await.map_err(|error| self.failed(error))?;
        Ok(claimed == 1)
    }

    async fn delete(&self, id: &str, principal: &Principal) -> Result<bool, RedisError> {
        let arguments = [BINDING.to_owned(), principal.as_str().to_owned()];
        let removed: i64 = self.redis.script(&REMOVE, &[&self.key(id)], &arguments, Repeat::Yes).await?;
        Ok(removed == 1)
    }

    /// The record in a value whose owner a script has compared. A value that cannot be read is no session.
    fn read(id: &str, principal: &Principal, value: &[u8]) -> Option<Arc<SessionRecord>> {
        match decode(id, principal, value) {
            Ok(record) => Some(Arc::new(record)),
            Err(error) => {
                tracing::warn!(%error, "a session record in Redis cannot be read; its client has to initialize again");
                None
            }
        }
    }
}

fn written(record: &SessionRecord) -> Result<String, StoreError> {
    encode(record, Timestamp::now()).map_err(StoreError::new)
}

impl SessionStore for RedisSessions {
    fn insert<'a>(&'a self, record: SessionRecord, client: &'a Client) -> Reply<'a, Option<Vec<Arc<SessionRecord>>>> {
        Box::pin(async move {
            if !self.put(&record).await? {
                return Ok(None);
            }
            // Its id and owner are enough here.
            let opened = SessionRecord::new(&record.id, record.principal);
            let Some(Removed { evicted, .. }) = self.opened.admit(opened, client) else { return Ok(Some(Vec::new())) };
            let mut gone = Vec::new();
            for old in evicted.into_iter().filter(|old| old.id != record.id) {
                if let Err(error) = self.delete(&old.id, &old.principal).await {
                    self.failures.note(&error, "a session that makes room for another stays in Redis until it expires");
                }
                gone.push(old);
            }
            Ok(Some(gone))
        })
    }

    fn load<'a>(&'a self, id: &'a str, principal: &'a Principal) -> Reply<'a, Option<Arc<SessionRecord>>> {
        Box::pin(async move {
            let arguments = [BINDING.to_owned(), principal.as_str().to_owned(), self.ttl_millis()];
            let value: Option<Vec<u8>> = self
                .redis
                .script(&LOAD, &[&self.key(id)], &arguments, Repeat::Yes)
                .await
                .map_err(|error| self.failed(error))?;
            let record = value.and_then(|value| Self::read(id, principal, &value));
            // The account of the sessions that were opened here follows.
            if record.is_some() {
                self.opened.load(id, principal).await?;
            } else {
                self.opened.remove(id, principal).await?;
            }
            Ok(record)
        })
    }

    fn replace<'a>(&'a self, current: &'a SessionRecord, next: SessionRecord) -> Reply<'a, Option<Arc<SessionRecord>>> {
        Box::pin(async move {
            let arguments = [
                BINDING.to_owned(),
                next.principal.as_str().to_owned(),
                written(&next)?,
                self.ttl_millis(),
                current.backend_id.as_deref().unwrap_or_default().to_owned(),
                backend_url(current).unwrap_or_default(),
            ];
            // Sent again after it was carried out, it finds its own record and returns that.
            let value: Option<Vec<u8>> = self
                .redis
                .script(&REPLACE, &[&self.key(&next.id)], &arguments, Repeat::Yes)
                .await
                .map_err(|error| self.failed(error))?;
            Ok(value.and_then(|value| Self::read(&next.id, &next.principal, &value)))
        })
    }

    fn remove<'a>(&'a self, id: &'a str, principal: &'a Principal) -> Reply<'a, bool> {
        Box::pin(async move {
            let removed = self.delete(id, principal).await.map_err(|error| self.failed(error))?;
            self.opened.remove(id, principal).await?;
            Ok(removed)
        })
    }

    fn ttl(&self) -> Duration {
        self.options.ttl
    }

    fn len(&self) -> usize {
        self.opened.len()
    }
}
