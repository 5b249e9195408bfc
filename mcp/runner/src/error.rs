//! Why the proxy does not start, or ends.

use std::path::PathBuf;

use mcp_middleware::BuildError;
use mcp_runconfig::ParseError;
use mcp_runconfig::environment::RUN_CONFIG_CHECKSUM;
use mcp_transport::{BackendError, OpenError};

/// Why the proxy does not start, or ends. One line each, which names what to mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
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
        /// What is wrong and what to do.
        problem: String,
    },
    /// The server's URL cannot be used.
    #[error("--backend: {0}")]
    Url(#[from] BackendError),
    /// The server's process cannot be started.
    #[error("{0}; mend the command after --")]
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
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The server's process ends again and again.
    #[error("the MCP server's process ends without answering; its last words are in the log")]
    ServerFailed,
}
