//! Which transport stands between the gate and the MCP server.

use std::path::Path;

use mcp_http::BoxService;
use mcp_runconfig::{ProxyMode, RunConfig, Transport};
use mcp_transport::{Proxy, ProxyConfig, StdioConfig, StdioFront};

use crate::RunError;
use crate::options::{Environment, RunOptions};

/// The transport that was chosen.
#[derive(Debug)]
pub(crate) enum Backend {
    /// In front of a server that speaks streamable HTTP.
    Http(Proxy),
    /// In front of a process of ours.
    Stdio(StdioFront),
}

impl Backend {
    pub(crate) fn service(&self) -> BoxService {
        match self {
            Self::Http(proxy) => proxy.service(),
            Self::Stdio(front) => front.service(),
        }
    }

    pub(crate) fn sessions(&self) -> usize {
        match self {
            Self::Http(proxy) => proxy.sessions(),
            Self::Stdio(front) => front.sessions(),
        }
    }
}

/// How to reach the server, before anything is started.
#[derive(Debug)]
pub(crate) enum Plan {
    Http(ProxyConfig),
    Stdio(StdioConfig),
}

/// Decides, or says why it cannot be done.
pub(crate) fn plan(
    path: &Path,
    config: &RunConfig,
    options: &RunOptions,
    environment: &Environment,
    body_limit: usize,
) -> Result<Plan, RunError> {
    let refuse = |field: &str, problem: String| {
        Err(RunError::Unserved { path: path.to_owned(), field: field.to_owned(), problem })
    };
    if config.transport == Transport::Sse || config.proxy_mode == ProxyMode::Sse {
        let field = if config.transport == Transport::Sse { "transport" } else { "proxy_mode" };
        return refuse(
            field,
            "HTTP with server-sent events (\"sse\") is not built yet; use \"streamable-http\"".to_owned(),
        );
    }
    if !config.remote_url.is_empty() {
        return refuse(
            "remote_url",
            "remote MCP servers are not built yet; remove it and use --backend URL".to_owned(),
        );
    }
    if !options.server.is_empty() {
        let mut stdio = StdioConfig::new(&options.server);
        stdio.environment = config.env_vars.clone().into_iter().collect();
        stdio.environment.push(("MCP_TRANSPORT".to_owned(), Transport::Stdio.to_string()));
        stdio.strict_versions = flag(config, "strict_protocol_validation");
        stdio.session_ttl = config.session_ttl.unwrap_or(stdio.session_ttl);
        stdio.answer_timeout = environment.answer_timeout.unwrap_or(stdio.answer_timeout);
        stdio.max_body_bytes = body_limit;
        return Ok(Plan::Stdio(stdio));
    }
    let url = match &options.backend {
        Some(url) => url.clone(),
        None if config.transport == Transport::Stdio => {
            let problem = "attaching to a server in another container is not built yet; start the server with \
                 `-- COMMAND…`, or use a streamable-http server";
            return refuse("transport", problem.to_owned());
        }
        None if config.target_port == 0 => {
            return refuse("target_port", "is missing; set it to the server's port, or use --backend URL".to_owned());
        }
        None => format!("http://mcp-{}:{}", config.name, config.target_port),
    };
    let mut proxy = ProxyConfig::new(&url)?;
    proxy.stateless = config.stateless;
    proxy.session_ttl = config.session_ttl.unwrap_or(proxy.session_ttl);
    proxy.max_body_bytes = body_limit;
    Ok(Plan::Http(proxy))
}

/// A boolean member that the document's type leaves raw.
pub(crate) fn flag(config: &RunConfig, member: &str) -> bool {
    let found = config.extra.iter().find(|(name, _)| name.eq_ignore_ascii_case(member));
    found.and_then(|(_, value)| value.as_bool()).unwrap_or(false)
}

impl Plan {
    /// Starts what is to be started. Needs a Tokio runtime.
    pub(crate) fn start(self) -> Result<Backend, RunError> {
        Ok(match self {
            Self::Http(config) => Backend::Http(Proxy::new(config)),
            Self::Stdio(config) => Backend::Stdio(StdioFront::start(config)?),
        })
    }
}
