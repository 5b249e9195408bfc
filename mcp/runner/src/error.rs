//! Why the proxy does not start, or ends.

use std::path::PathBuf;

use mcp_middleware::BuildError;
use mcp_redis::ConfigError;
use mcp_runconfig::environment::RUN_CONFIG_CHECKSUM;
use mcp_runconfig::{ParseError, exit_status};
use mcp_transport::{BackendError, OpenError};

/// An input that cannot be used: which flag and file, which member, and how to mend it.
#[derive(Debug, thiserror::Error)]
#[error("--{flag} {}: {source}", path.display())]
pub struct InputError {
    pub(crate) flag: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) source: Box<ParseError>,
}

/// Why the proxy does not start, or ends. One line each, which names what to mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An input of `explain` cannot be used.
    #[error(transparent)]
    Explain(#[from] InputError),
    /// There is no document.
    #[error("no RunConfig: none of {0} exists; name one with --config FILE")]
    NoDocument(String),
    /// The document cannot be read.
    #[error("{}: cannot be read: {source}; name a readable RunConfig with --config FILE", path.display())]
    Unreadable {
        /// The document.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The document is not the one that the pod was made for.
    #[error(
        "{}: is not the RunConfig that this pod was made for ({RUN_CONFIG_CHECKSUM}); the pods that follow the newer one replace this pod, \
         and a pod that is older than its ConfigMap starts on the next try", path.display()
    )]
    OtherDocument {
        /// The document.
        path: PathBuf,
    },
    /// The document does not parse, or asks for what is not built.
    #[error("{}: {source}", path.display())]
    Document {
        /// The document.
        path: PathBuf,
        /// The member and how to mend it.
        source: Box<ParseError>,
    },
    /// A middleware cannot be built.
    #[error("{}: {source}", path.display())]
    Middleware {
        /// The document.
        path: PathBuf,
        /// The middleware and how to mend it.
        source: Box<BuildError>,
    },
    /// The document asks for what is not built, or leaves out what is needed.
    #[error("{}: {field}: {problem}", path.display())]
    Unserved {
        /// The document.
        path: PathBuf,
        /// The member at fault.
        field: String,
        /// The problem and the fix.
        problem: String,
    },
    /// The Redis for sessions cannot be used.
    #[error("{}: scaling_config.session_redis.{source}", path.display())]
    SessionRedis {
        /// The document.
        path: PathBuf,
        /// The member at fault, and how to mend it.
        source: ConfigError,
    },
    /// The server's URL cannot be used.
    #[error("--backend: {0}")]
    Url(#[from] BackendError),
    /// The server's process cannot be started, or its container not be attached to.
    #[error("{}; {}", .0, way_out(.0))]
    Start(#[from] OpenError),
    /// No listener.
    #[error("cannot listen on {address}: {source}; choose another address with --listen ADDR")]
    Listen {
        /// The address that was asked for.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The operating system refuses what every program needs.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted action.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The server was attached to and goes on although its input has ended. The process's exit status tells the operator, which replaces
    /// the server's pod.
    #[error(
        "the MCP server does not end although its input did, so it can never be spoken to again; its operator replaces its pod, and a \
         server that ends at the end of its input saves that time"
    )]
    ServerStays,
    /// A flag names something that cannot be used.
    #[error("{0}")]
    Input(String),
    /// A step of a login fails; the report is on standard output.
    #[error("the login fails at the step {0}; its cause and cure are in the report")]
    Login(&'static str),
    /// The server's process ends again and again.
    #[error("the MCP server's process ends without answering; its last words are in the log")]
    ServerFailed,
}

fn way_out(error: &OpenError) -> &'static str {
    match error {
        OpenError::Unreachable(_) => {
            "run the proxy in a pod, name a cluster with KUBECONFIG, or give the server's command after --"
        }
        _ => "mend the command after --",
    }
}

impl RunError {
    /// The exit status of the process.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::ServerStays => exit_status::SERVER_STAYS,
            // As clap has it for what does not parse.
            Self::Input(_) | Self::Explain(_) => 2,
            _ => 1,
        }
    }
}
