//! Errors, for logs and for the metrics that count them.

use std::sync::Arc;
use std::time::Duration;

use mcp_runconfig::RedisProblem;

/// A setting that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}; {fix}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The member at fault: `address`, `key_prefix`, `tls.caCertFile`, or one of a limit.
    pub field: &'static str,
    /// The problem with it.
    pub problem: String,
    /// The way to correct it.
    pub fix: String,
}

impl ConfigError {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { field, problem: problem.into(), fix: fix.into() }
    }

    pub(crate) fn of(field: &'static str, RedisProblem { problem, fix }: RedisProblem) -> Self {
        Self { field, problem, fix }
    }
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
        let problem = || without_arguments(&error.detail().map_or_else(|| error.to_string(), str::to_owned));
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
            (_, None) => {
                Self::Refused { address, code: "ERR".to_owned(), problem: without_arguments(&error.to_string()) }
            }
        }
    }

    /// Whether another connection may bring what this one cannot: it is gone, its answers cannot be told apart any more, it leads to a server that is
    /// no primary any more, or Redis asks for a password since.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Refused { code, .. } => ["READONLY", "MASTERDOWN", "NOAUTH"].contains(&&**code),
            _ => true,
        }
    }
}

/// A sentence of Redis without the arguments of a command that it does not know, which it quotes: they name sessions and their owners, and are a password
/// where `AUTH` has another name.
fn without_arguments(sentence: &str) -> String {
    sentence.split(", with args beginning with").next().unwrap_or_default().to_owned()
}
