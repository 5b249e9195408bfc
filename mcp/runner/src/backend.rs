//! Which transport stands between the gate and the MCP server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mcp_http::Connecting;
use mcp_http::client::{ClientError, ClientTls};
use mcp_runconfig::endpoint::EndpointPolicy;
use mcp_runconfig::{Additions, ProxyMode, RunConfig, Transport};
use mcp_store::{Limits, MemorySessions, SessionStore};
use mcp_transport::{
    Attach, ClientUrl, Endpoints, MuxConfig, OpenError, Pipe, Process, Proxy, ProxyConfig, Sse, SseConfig, Streamable,
    StreamableConfig, Transport as Backend,
};

use rustls::crypto::CryptoProvider;

use crate::RunError;
use crate::options::{Environment, RunOptions};
use crate::shared::{Shared, session_redis};

/// The time that a session lives without being used where the document does not say.
const SESSION_TTL: Duration = Duration::from_hours(2);

/// The way to the server, before anything is started.
#[derive(Debug)]
pub(crate) struct Plan {
    sessions: Arc<dyn SessionStore>,
    server: Server,
}

#[derive(Debug)]
enum Server {
    Http(Box<ProxyConfig>),
    Stdio(Stdio, Front),
}

/// The transport that clients speak to a server behind a pipe.
#[derive(Debug)]
enum Front {
    Streamable(StreamableConfig),
    Sse(SseConfig),
}

impl Front {
    fn of(config: &RunConfig, environment: &Environment) -> Self {
        let mux = MuxConfig::default();
        let mux = MuxConfig {
            answer_timeout: environment.answer_timeout.unwrap_or(mux.answer_timeout),
            notice: environment.health_check_interval.map_or(mux.notice, |interval| interval.min(mux.notice)),
        };
        match config.proxy_mode {
            ProxyMode::StreamableHttp => {
                let strict_versions = config.strict_protocol_validation;
                Self::Streamable(StreamableConfig { strict_versions, mux })
            }
            ProxyMode::Sse => Self::Sse(SseConfig { client_url: client_url(config), mux }),
        }
    }

    async fn start(self, pipe: Arc<dyn Pipe>, sessions: Arc<dyn SessionStore>) -> Result<Box<dyn Backend>, OpenError> {
        Ok(match self {
            Self::Streamable(config) => Box::new(Streamable::start(pipe, config, sessions).await?),
            // A session lives for as long as its stream is open, in the process that holds that.
            Self::Sse(config) => Box::new(Sse::start(pipe, config).await?),
        })
    }
}

/// Where a server runs that speaks over its standard input and output.
#[derive(Debug)]
enum Stdio {
    /// In a process of this one's.
    Process(Process),
    /// In the container of a pod.
    Container {
        /// The pod's name.
        pod: String,
    },
}

/// The container of the MCP server in its pod.
const CONTAINER: &str = "mcp";

/// Decides, or says why it cannot be done. `login`: callers log in at the proxy.
pub(crate) fn plan(
    path: &Path,
    config: &RunConfig,
    options: &RunOptions,
    environment: &Environment,
    provider: &Arc<CryptoProvider>,
    shared: &Shared,
    login: bool,
) -> Result<Plan, RunError> {
    let refusal = |field: &str, problem| RunError::Unserved { path: path.to_owned(), field: field.to_owned(), problem };
    let refuse = |field: &str, problem: String| Err(refusal(field, problem));
    if config.remote_auth_config.is_some() && config.remote_url.is_empty() {
        return refuse("remote_auth_config", "has no effect without remote_url; remove it".to_owned());
    }
    let session_ttl = config.session_ttl.unwrap_or(SESSION_TTL);
    let stdio = if !options.server.is_empty() {
        let mut process = Process::new(&options.server);
        process.environment = config.env_vars.clone().into_iter().collect();
        process.environment.push(("MCP_TRANSPORT".to_owned(), Transport::Stdio.to_string()));
        Some(Stdio::Process(process))
    } else if config.transport == Transport::Stdio && options.backend.is_none() && config.remote_url.is_empty() {
        Some(Stdio::Container { pod: format!("{}-0", config.name) })
    } else {
        None
    };
    if let Some(stdio) = stdio {
        if session_redis(config).is_some() {
            tracing::warn!(
                "scaling_config.session_redis has no effect on the sessions of a server behind a pipe: they live and end in this proxy, and a \
                 second replica does not know them"
            );
        }
        let sessions = Arc::new(MemorySessions::new(Limits::new(session_ttl)));
        return Ok(Plan { sessions, server: Server::Stdio(stdio, Front::of(config, environment)) });
    }
    let sessions = shared
        .sessions(config, session_ttl)
        .map_err(|source| RunError::SessionRedis { path: path.to_owned(), source })?;
    let sse = (config.transport == Transport::Sse).then(|| client_url(config));
    let url = match &options.backend {
        Some(url) => url.clone(),
        None if !config.remote_url.is_empty() => {
            let policy = EndpointPolicy {
                kubernetes_api: environment.kubernetes_api,
                egress: options.egress(),
                ..EndpointPolicy::new(config.portcullis.allow_private_endpoint, options.exempt_endpoints.clone())
            };
            let proxy = remote(&config.remote_url, policy, provider);
            let mut proxy = proxy.map_err(|problem| refusal("remote_url", problem))?;
            proxy.stateless = config.stateless;
            proxy.checked = environment.remote_health_checks;
            proxy.login = login;
            proxy.sse = sse;
            return Ok(Plan { sessions, server: Server::Http(Box::new(proxy)) });
        }
        None if config.target_port == 0 => {
            return refuse("target_port", "is missing; set it to the server's port, or use --backend URL".to_owned());
        }
        None => format!("http://{}:{}", service(config), config.target_port),
    };
    let mut proxy = ProxyConfig::new(&url)?;
    proxy.stateless = config.stateless;
    proxy.login = login;
    proxy.sse = sse;
    Ok(Plan { sessions, server: Server::Http(Box::new(proxy)) })
}

/// The way to call the remote server at `url`, or why it cannot be called. Its text is judged now, so that a document that cannot work does not start; the
/// addresses that its name has are judged at each connection.
fn remote(url: &str, policy: EndpointPolicy, provider: &Arc<CryptoProvider>) -> Result<ProxyConfig, String> {
    policy.check_url(url).map_err(|error| error.to_string())?;
    let roots = |ClientError { problem, .. }| {
        format!("cannot be trusted: a CA bundle {problem}; install one, or name one with --ca-bundle")
    };
    let https = url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
    let tls = https.then(|| ClientTls::default().config(provider)).transpose().map_err(roots)?;
    let how = Connecting { tls, policy: Some(Arc::new(policy)), ..Connecting::default() };
    ProxyConfig::remote(url, how).map_err(|error| error.to_string())
}

/// The Service of the MCP server. The usual one chooses a pod for each client, which is a proxy: where proxies share sessions, each of them has to see
/// the pods, or two would send one session to two pods.
fn service(config: &RunConfig) -> String {
    let several = config.scaling_config.as_ref().and_then(|scaling| scaling.backend_replicas) > Some(1);
    let suffix = if several && session_redis(config).is_some() { "-headless" } else { "" };
    format!("mcp-{}{suffix}", config.name)
}

fn client_url(config: &RunConfig) -> ClientUrl {
    ClientUrl { prefix: config.endpoint_prefix.clone(), trust_proxy_headers: config.trust_proxy_headers }
}

impl Plan {
    /// Starts what is to be started. Needs a Tokio runtime.
    pub(crate) async fn start(self) -> Result<Box<dyn Backend>, RunError> {
        let Self { sessions, server } = self;
        Ok(match server {
            Server::Http(config) => Box::new(Proxy::new(*config, sessions)),
            Server::Stdio(stdio, front) => {
                let pipe: Arc<dyn Pipe> = match stdio {
                    Stdio::Process(process) => Arc::new(process),
                    Stdio::Container { pod } => Arc::new(Attach::to(pod, CONTAINER).await?),
                };
                front.start(pipe, sessions).await?
            }
        })
    }

    /// The endpoints of a proxy whose guards judge messages. `None` where nothing but MCP can reach the server, which is behind a pipe.
    pub(crate) fn endpoints(&self, path: &Path, config: &RunConfig) -> Result<Option<Endpoints>, RunError> {
        let Additions { mcp_paths, open_paths, .. } = &config.portcullis;
        let refuse = |problem: &str| {
            let list = if mcp_paths.is_empty() { "open_paths" } else { "mcp_paths" };
            let (field, problem) = (format!("portcullis.{list}"), format!("has no effect, as {problem}; remove it"));
            Err(RunError::Unserved { path: path.to_owned(), field, problem })
        };
        let asked = !(mcp_paths.is_empty() && open_paths.is_empty());
        match &self.server {
            Server::Stdio(..) if asked => refuse("a server behind a pipe serves MCP alone"),
            Server::Http(proxy) if asked && proxy.replaces_paths() => {
                refuse("the path of the server's URL replaces every other")
            }
            Server::Stdio(..) => Ok(None),
            Server::Http(proxy) => Ok(Some(proxy.endpoints(mcp_paths, open_paths))),
        }
    }

    /// Whether requests go on to the server as the client's, with its headers.
    pub(crate) fn forwards(&self) -> bool {
        matches!(self.server, Server::Http(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_that_share_sessions_see_each_pod_of_a_server_with_several() {
        for (scaling, service_name) in [
            ("{}", "mcp-demo"),
            (r#"{"backend_replicas":2}"#, "mcp-demo"),
            (r#"{"session_redis":{"address":"redis:6379"}}"#, "mcp-demo"),
            (r#"{"backend_replicas":1,"session_redis":{"address":"redis:6379"}}"#, "mcp-demo"),
            (r#"{"backend_replicas":2,"session_redis":{"address":"redis:6379"}}"#, "mcp-demo-headless"),
        ] {
            let document = format!(r#"{{"name":"demo","transport":"streamable-http","scaling_config":{scaling}}}"#);
            assert_eq!(service(&RunConfig::parse(document.as_bytes()).unwrap()), service_name, "{scaling}");
        }
    }
}
