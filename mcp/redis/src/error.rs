//! Errors, for logs and for the metrics that count them.

use std::sync::Arc;
use std::time::Duration;

/// A setting that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The address is not one.
    #[error("address: {0:?} is no host and port; write one such as redis.example.svc:6379")]
    Address(String),
    /// The prefix of keys does not end as it has to.
    #[error("key_prefix: {0:?} must end with a colon, or the keys of two prefixes can be equal; write {0:?} with one")]
    Prefix(String),
    /// The file of the authorities has no path to find it by.
    #[error("tls.caCertFile: {0:?} is no absolute path; write one that begins with /")]
    CaFile(String),
    /// A rate limit that lets nothing pass, or everything.
    #[error("{field}: {problem}")]
    Limit {
        /// The member of the limit.
        field: &'static str,
        /// The problem, and what to write.
        problem: &'static str,
    },
}

/// A command that brought no answer to use. None of them holds a password or an argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// There is no connection.
    #[error("cannot connect to Redis at {address}: {problem}")]
    Unreachable {
        /// The host and port.
        address: Arc<str>,
        /// The reason.
        problem: String,
    },
    /// The answer was not there in time.
    #[error("no answer from Redis at {address} within {within:?}")]
    Timeout {
        /// The host and port.
        address: Arc<str>,
        /// The limit.
        within: Duration,
    },
    /// The connection ended before the answer; the command may have been carried out.
    #[error("the connection to Redis at {address} broke: {problem}")]
    Broken {
        /// The host and port.
        address: Arc<str>,
        /// The reason.
        problem: String,
    },
    /// Redis answered with an error.
    #[error("Redis at {address} refuses a command: {code} {problem}")]
    Refused {
        /// The host and port.
        address: Arc<str>,
        /// The first word of the error: `WRONGPASS`, `OOM`, `LOADING`.
        code: String,
        /// The rest.
        problem: String,
    },
    /// The answer is none that the command has.
    #[error("Redis at {address} answers what is no answer: {problem}")]
    Unexpected {
        /// The host and port.
        address: Arc<str>,
        /// The reason.
        problem: String,
    },
}

impl RedisError {
    /// The kinds of errors.
    pub(crate) const KINDS: [&str; 5] = ["unreachable", "timeout", "broken", "refused", "unexpected"];

    /// The kind of error, as a label of metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Broken { .. } => "broken",
            Self::Refused { .. } => "refused",
            Self::Unexpected { .. } => "unexpected",
        }
    }

    /// Translates an error of the client.
    pub(crate) fn of(address: &Arc<str>, within: Duration, error: &redis::RedisError) -> Self {
        let address = Arc::clone(address);
        let problem = || error.detail().map_or_else(|| error.to_string(), str::to_owned);
        if error.is_timeout() {
            return Self::Timeout { address, within };
        }
        match (error.kind(), error.code()) {
            (redis::ErrorKind::Io, _) => Self::Broken { address, problem: error.to_string() },
            (redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType, _) => Self::Unexpected {
                address,
                problem: "it is not in Redis' protocol, or not of the command's type".into(),
            },
            (_, Some(code)) => Self::Refused { address, code: code.to_owned(), problem: problem() },
            (_, None) => Self::Refused { address, code: "ERR".to_owned(), problem: error.to_string() },
        }
    }

    /// Whether another connection may bring what this one cannot: it is gone, its answers cannot be told apart any more, it leads to a server that is
    /// no primary any more, or Redis asks for a password since.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Refused { code, .. } => ["READONLY", "NOAUTH"].contains(&&**code),
            _ => true,
        }
    }
}
