//! Middleware by their type names, and how each is built from its parameters.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_runconfig::chain::{AUTH, BEFORE_CREDENTIALS, CREDENTIALS, DEFAULT_BODY_LIMIT};
use mcp_runconfig::endpoint::{Egress, IpNet};
use mcp_runconfig::environment::{SECRET_PREFIX, SECRETS_PROVIDER};
use mcp_runconfig::{MiddlewareConfig, Parameters, ParseError, is_header_of_credential};
use rustls::crypto::CryptoProvider;
use serde_json::Value;

use crate::chain::{Chain, Middleware};
use crate::decisions::{Decisions, Guard};
use crate::metrics::Metrics;
use crate::secrets::{Secret, SecretSource, Secrets};
use crate::shadows::Shadow;

type Built = BoxFuture<'static, Result<Box<dyn Middleware>, BuildError>>;
type Build = Box<dyn Fn(Value, BuildContext) -> Result<Built, BuildError> + Send + Sync>;

/// Reads a variable of the process; `None` where it is not set.
pub type Variables = fn(&str) -> Option<String>;

/// The types of middleware that there are. A foreign crate adds its own with [`Registry::register`].
#[derive(Default)]
pub struct Registry {
    builds: BTreeMap<String, Build>,
}

/// The settings of the proxy in which middleware run.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Name of the MCP server; told to webhooks whose parameters name none.
    pub server_name: String,
    /// Transport of the MCP server; told to webhooks whose parameters name none.
    pub transport: String,
    /// Whether clients hear the answer to a request on the stream of their session, and not in the response to its POST (HTTP with server-sent
    /// events).
    pub answers_on_stream: bool,
    /// Where the proxy listens.
    pub address: SocketAddr,
    /// Whether callers have to log in.
    pub login: bool,
    /// The time that the body of a request may take to arrive.
    pub read_timeout: Duration,
    /// Put before the absolute paths of the document, for running it outside the container it was written for.
    pub files_root: Option<PathBuf>,
    /// The caller where nobody has to log in: the operating system's user, or `local`.
    pub local_user: String,
    /// The cryptography of TLS to webhooks and identity providers.
    pub provider: Arc<CryptoProvider>,
    /// Networks that middleware may call whatever else they refuse.
    pub exempt_endpoints: Vec<IpNet>,
    /// The proxy through which middleware calls https servers.
    pub egress: Option<Egress>,
    /// The secrets that the document may name. `None` without a provider of secrets.
    pub secrets: Option<Secrets>,
    /// The OAuth client secret by which the proxy logs in where it asks the identity provider about tokens (introspection), for documents without a
    /// `ClientSecret`. It comes from the environment, `TOOLHIVE_OIDC_CLIENT_SECRET`, which the operator fills from the Secret of `clientSecretRef`.
    pub oidc_client_secret: SecretSource,
    /// Headers for the collector of traces and metrics, each by the name of its variable behind `TOOLHIVE_OTEL_HEADER_`.
    pub collector_headers: Vec<(String, Secret)>,
    /// The variables of the process that hold no secrets.
    pub variables: Variables,
    /// The proxy's metrics, to which middleware add their own.
    pub metrics: Metrics,
    /// The counters of guards' decisions.
    pub decisions: Decisions,
}

/// A middleware that a document asks for, and where it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The middleware's type and parameters.
    pub config: MiddlewareConfig,
    /// Where in the document.
    pub place: Place,
}

/// Where a document asks for a middleware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In an entry that lies at this path, such as `middleware_configs[2]`.
    At(String),
    /// In other members: pairs of a path within the entry, such as `parameters.max_bytes`, and the document's member that it was made of.
    Members(&'static [(&'static str, &'static str)]),
}

/// One entry of the chain that is being built.
#[derive(Clone, Debug)]
pub struct BuildContext {
    /// The settings of the proxy.
    pub settings: Arc<ProxySettings>,
    entries: Arc<[Entry]>,
    /// The index of the entry.
    at: usize,
}

/// A middleware that cannot be built. The proxy must not start; the author of the RunConfig has to correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{field} ({kind}): {problem}; {fix}")]
pub struct BuildError {
    /// The middleware's `type`.
    pub kind: String,
    /// The member at fault, as a path from the document's root.
    pub field: String,
    /// The problem with it.
    pub problem: String,
    /// The way to correct it.
    pub fix: String,
}

// === impl ProxySettings ===

impl ProxySettings {
    /// The settings of a proxy that listens at `address`: with answers in responses, without names, a login and a root for
    /// files, with the user `local`, half a minute for a body, no exempt networks, no egress proxy, no secrets and no variables.
    pub fn new(address: SocketAddr, provider: Arc<CryptoProvider>) -> Self {
        let metrics = Metrics::default();
        Self {
            server_name: String::new(),
            transport: String::new(),
            answers_on_stream: false,
            address,
            login: false,
            read_timeout: Duration::from_secs(30),
            files_root: None,
            local_user: "local".to_owned(),
            provider,
            exempt_endpoints: Vec::new(),
            egress: None,
            secrets: None,
            oidc_client_secret: SecretSource::None,
            collector_headers: Vec::new(),
            variables: |_| None,
            decisions: Decisions::new(&metrics),
            metrics,
        }
    }
}

// === impl Registry ===

impl Registry {
    /// Adds the middleware `kind`, which `build` makes of its parameters. One that was there under that name goes.
    pub fn register<P, M, F>(
        &mut self,
        kind: impl Into<String>,
        build: impl Fn(P, BuildContext) -> F + Send + Sync + 'static,
    ) -> &mut Self
    where
        P: Parameters,
        M: Middleware + 'static,
        F: Future<Output = Result<M, BuildError>> + Send + 'static,
    {
        let build: Build = Box::new(move |parameters, context| {
            let path = context.entry().place.path("parameters");
            let parameters = P::read(parameters, &path).map_err(|error| context.located(error))?;
            let middleware = build(parameters, context);
            Ok(Box::pin(async move { Ok(Box::new(middleware.await?) as Box<dyn Middleware>) }))
        });
        self.builds.insert(kind.into(), build);
        self
    }

    /// The types that there are.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.builds.keys().map(String::as_str)
    }

    /// Builds the chain of a document's `middleware_configs`, the first outermost.
    ///
    /// # Errors
    /// As [`build_entries`](Self::build_entries).
    pub async fn build(&self, configs: &[MiddlewareConfig], settings: ProxySettings) -> Result<Chain, BuildError> {
        self.build_entries(Entry::list("middleware_configs", configs), settings).await
    }

    /// Builds the chain of `entries`, the first outermost.
    ///
    /// # Errors
    /// Names the first middleware that cannot be built as it is written: an unknown type, a bad parameter, and whatever else its type
    /// refuses.
    pub async fn build_entries(&self, entries: Vec<Entry>, settings: ProxySettings) -> Result<Chain, BuildError> {
        let (entries, settings) = (Arc::<[Entry]>::from(entries), Arc::new(settings));
        let mut middleware = Vec::with_capacity(entries.len());
        for at in 0..entries.len() {
            let context = BuildContext { settings: Arc::clone(&settings), entries: Arc::clone(&entries), at };
            let MiddlewareConfig { kind, parameters } = context.entry().config.clone();
            let Some(build) = self.builds.get(&kind) else {
                let supported = self.kinds().collect::<Vec<_>>().join(", ");
                return Err(context.error(
                    "type",
                    format!("{kind:?} is not supported by this proxy"),
                    format!("use one of {supported}, or a proxy that has it"),
                ));
            };
            middleware.push(build(parameters, context)?.await?);
        }
        let kinds = entries.iter().map(|entry| entry.config.kind.clone()).collect();
        let default_limit = usize::try_from(DEFAULT_BODY_LIMIT).unwrap_or(usize::MAX);
        Ok(Chain::new(middleware, kinds, default_limit, settings.read_timeout))
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.builds.keys()).finish()
    }
}

// === impl Entry ===

impl Entry {
    /// The entries that the document has in the list `member`.
    pub fn list(member: &str, configs: &[MiddlewareConfig]) -> Vec<Self> {
        let at = |at: usize| Place::At(format!("{member}[{at}]"));
        configs.iter().enumerate().map(|(index, config)| Self { config: config.clone(), place: at(index) }).collect()
    }
}

impl Place {
    /// The path in the document of what lies at `member` within the entry.
    fn path(&self, member: &str) -> String {
        match self {
            Self::At(path) => format!("{path}.{member}"),
            Self::Members(sources) => {
                let source = sources.iter().find_map(|(made, of)| Some(format!("{of}{}", member.strip_prefix(made)?)));
                source.unwrap_or_else(|| member.to_owned())
            }
        }
    }
}

// === impl BuildContext ===

impl BuildContext {
    /// Whether a middleware of this type stands further out.
    pub fn is_inside_of(&self, kind: &str) -> bool {
        self.entries[..self.at].iter().any(|before| before.config.kind == kind)
    }

    /// Whether a middleware of this type stands further in.
    pub fn is_outside_of(&self, kind: &str) -> bool {
        self.entries[self.at + 1..].iter().any(|after| after.config.kind == kind)
    }

    /// The entry of the chain that puts the proxy's credential into the header of this name, if there is one: its type.
    pub fn credential_in(&self, header: &str) -> Option<&str> {
        let own = self.entries.iter().find(|entry| is_header_of_credential(&entry.config, header));
        own.map(|entry| &*entry.config.kind)
    }

    /// Refuses a chain in which another middleware of its type stands further out: one of them would undo or repeat the work of the other.
    ///
    /// # Errors
    /// There is one.
    pub fn check_single(&self) -> Result<(), BuildError> {
        if self.is_inside_of(&self.entry().config.kind) {
            return Err(self.error("type", "stands in the chain twice", "keep one of them"));
        }
        Ok(())
    }

    /// Refuses a place in the chain for what gets a credential for the server: one where a refused call would cost a credential, where nobody has
    /// called yet, or beside another credential.
    ///
    /// # Errors
    /// It is such a place.
    pub fn check_credential(&self) -> Result<(), BuildError> {
        self.check_single()?;
        let kind = &self.entry().config.kind;
        if let Some(other) = CREDENTIALS.into_iter().find(|other| self.is_inside_of(other)) {
            let problem = format!("{kind} would take the credential of {other} for the caller's");
            return Err(self.error("type", problem, "keep one of them"));
        }
        if !self.is_inside_of(AUTH) {
            let fix = "put {\"type\":\"auth\"} before it, which says who calls";
            return Err(self.error("type", format!("{kind} needs auth before it"), fix));
        }
        if let Some(other) = BEFORE_CREDENTIALS.into_iter().find(|other| self.is_outside_of(other)) {
            let problem = format!("{kind} would get credentials for calls that {other} changes or refuses afterwards");
            return Err(self.error("type", problem, format!("put it behind {other}")));
        }
        Ok(())
    }

    /// The guard that this middleware is, for its decisions.
    pub fn guard(&self) -> Guard {
        self.settings.decisions.guard(&self.entry().config.kind)
    }

    /// The guard that one webhook of this middleware is.
    pub fn webhook(&self, name: &str) -> Guard {
        self.settings.decisions.webhook(&self.entry().config.kind, name)
    }

    /// The shadow that this middleware is, or its webhook of this name.
    pub fn shadow(&self, webhook: Option<&str>) -> Shadow {
        self.settings.decisions.shadow(&self.entry().config.kind, webhook)
    }

    /// The value of the secret `identifier`, which `member` of the entry names.
    ///
    /// # Errors
    /// There is none.
    pub fn secret(&self, member: &str, identifier: &str) -> Result<&str, BuildError> {
        let Some(secrets) = &self.settings.secrets else {
            let fix = format!("set {SECRETS_PROVIDER}=environment");
            return Err(self.error(member, "asks for a secret, and there is no provider of secrets", fix));
        };
        secrets.get(identifier).ok_or_else(|| {
            let problem = format!("names the secret {identifier:?}, which is not there, or blank");
            self.error(member, problem, format!("set {SECRET_PREFIX}{identifier}"))
        })
    }

    /// An error about `member` of the entry, such as `parameters.max_bytes`.
    pub fn error(&self, member: &str, problem: impl Into<String>, fix: impl Into<String>) -> BuildError {
        self.located(ParseError::new(self.entry().place.path(member), problem, fix))
    }

    /// An error about a member that is named by its path in the document.
    fn located(&self, ParseError { field, problem, fix, .. }: ParseError) -> BuildError {
        BuildError { kind: self.entry().config.kind.clone(), field, problem, fix }
    }

    fn entry(&self) -> &Entry {
        &self.entries[self.at]
    }
}
