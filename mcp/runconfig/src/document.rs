//! The document itself.

pub(crate) mod additions;
pub mod chain;

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use crate::{
    Additions, Parameters as _, ParseError, PermissionProfile,
    decode::{self, wrong_type},
    duration,
    names::{Unknown, fold},
    parameters::origin_problem,
    webhook::WebhookConfig,
};

use chain::{
    AUTH, AuditConfig, AuthParameters, AuthzConfig, AwsStsConfig, HeaderForward, OidcConfig, RateLimitConfig,
    RemoteAuthConfig, TelemetryConfig, TokenExchangeConfig, ToolOverride,
};

/// The version of the document that is written, and assumed where none is given.
pub const SCHEMA_VERSION: &str = "v0.1.0";

/// How a proxy for one MCP server is to run. Members are declared in the order ToolHive writes them.
///
/// Members that this version does not act on are left out, but for those that ask for a guard: [`parse`](Self::parse) refuses them. Those that it
/// does not know are listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "its members are the contract's")]
pub struct RunConfig {
    /// Version of the document, [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// `metadata.generation` of the MCPServer this was made from; 0 means unversioned.
    #[serde(skip_serializing_if = "is_zero")]
    pub mcpserver_generation: u64,
    /// Container image of the MCP server; empty for a remote one.
    pub image: String,
    /// URL of a remote MCP server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remote_url: String,
    /// The proxy's own login at the remote MCP server; `None` where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_auth_config: Option<RemoteAuthConfig>,
    /// Arguments of the MCP server's container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cmd_args: Vec<String>,
    /// Name of the MCP server.
    pub name: String,
    /// Name of its workload; equals `name` under the operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// Name without prefixes; equals `name` under the operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub base_name: String,
    /// How the MCP server is spoken to.
    pub transport: Transport,
    /// Address the proxy listens on.
    pub host: String,
    /// Port the proxy listens on.
    pub port: u16,
    /// Port the MCP server listens on; 0 means not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub target_port: u16,
    /// Host of the MCP server where it is not the workload's Service.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_host: String,
    /// Values of `Origin` that are let in; empty means no check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
    /// Name or path the permission profile came from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub permission_profile_name_or_path: String,
    /// The resolved permission profile; written as null when there is none.
    pub permission_profile: Option<PermissionProfile>,
    /// Environment of the MCP server's container. Never holds secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, String>,
    /// Whether the proxy logs more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// Host volumes, `host:container[:ro]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Labels of the workload.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub container_labels: BTreeMap<String, String>,
    /// The login of callers; `None` where nobody has to log in. The `auth` entry of the chain says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config: Option<OidcConfig>,
    /// The exchange of callers' tokens; `None` where they go on as they are. Read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_exchange_config: Option<TokenExchangeConfig>,
    /// The roles of AWS that sign requests; `None` where nobody signs. Read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_sts_config: Option<AwsStsConfig>,
    /// The authorization of calls; `None` where everybody may call all. Read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config: Option<AuthzConfig>,
    /// A file with that. No proxy of this version reads one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub authz_config_path: String,
    /// Which requests are written down; `None` where none are. Read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_config: Option<AuditConfig>,
    /// A file with that. No proxy of this version reads one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub audit_config_path: String,
    /// Traces and metrics; `None` where there are none. Of a document with `middleware_configs`, only the ports are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config: Option<TelemetryConfig>,
    /// Limits on how often tools are called; `None` where there are none. Read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit_config: Option<RateLimitConfig>,
    /// The namespace of the MCP server whose calls are counted, for the keys of the counts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rate_limit_namespace: String,
    /// Whether `X-Forwarded-*` from the client is believed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trust_proxy_headers: bool,
    /// Whether a request has to name the version of the protocol that its session agreed on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict_protocol_validation: bool,
    /// Whether the server knows POST only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// How long an idle session lives; absent means the proxy's default of two hours.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "go_duration",
        deserialize_with = "positive_duration"
    )]
    pub session_ttl: Option<Duration>,
    /// Most bytes of a request's body; 0 means 8 MiB. Where it is set, it replaces the limits of `bodylimit` entries.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_request_body_size: u64,
    /// How long a request may take to arrive, head and body; absent means 30 seconds.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "go_duration",
        deserialize_with = "positive_duration"
    )]
    pub proxy_read_timeout: Option<Duration>,
    /// The transport between the proxy and its clients. Equals the transport unless that is stdio.
    pub proxy_mode: ProxyMode,
    /// A copy of the login's `CACertPath`, which ToolHive writes and nobody reads.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub thv_ca_bundle: String,
    /// A copy of the login's `AuthTokenFile`, which ToolHive writes and nobody reads.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub jwks_auth_token_file: String,
    /// The names of the tools that clients see; read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_filter: Vec<String>,
    /// How tools are presented, by their real name; read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools_override: BTreeMap<String, ToolOverride>,
    /// The middleware chain; the first entry is outermost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub middleware_configs: Vec<MiddlewareConfig>,
    /// Middleware added behind the chain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_middleware_configs: Vec<MiddlewareConfig>,
    /// Webhooks that judge; read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validating_webhooks: Vec<WebhookConfig>,
    /// Webhooks that change; read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mutating_webhooks: Vec<WebhookConfig>,
    /// Prefix of the endpoint URLs announced over SSE.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint_prefix: String,
    /// Headers that requests to a remote MCP server get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_forward: Option<HeaderForward>,
    /// Replicas of the backend and their shared session store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_config: Option<ScalingConfig>,
    /// Members that ToolHive's document does not have.
    #[serde(skip_serializing_if = "Additions::is_empty")]
    pub portcullis: Additions,
    /// The paths of members that are not known, each with the one that may have been meant: a list for a log, of bounded length.
    #[serde(skip)]
    pub unknown_members: Vec<String>,
}

/// How an MCP server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Over the process's standard input and output.
    #[default]
    Stdio,
    /// HTTP with server-sent events (the older HTTP transport).
    Sse,
    /// Streamable HTTP.
    StreamableHttp,
}

/// What a proxy speaks to its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyMode {
    /// HTTP with server-sent events.
    Sse,
    /// Streamable HTTP.
    #[default]
    #[serde(alias = "")]
    StreamableHttp,
}

/// One entry of the middleware chain.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MiddlewareConfig {
    /// The middleware's `type`.
    #[serde(rename = "type", deserialize_with = "not_empty")]
    pub kind: String,
    /// Its parameters, as its type defines them; null where it has none.
    #[serde(default)]
    pub parameters: Value,
}

/// Replicas of the backend and where their sessions are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScalingConfig {
    /// Replicas of the MCP server; absent leaves them to an autoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_replicas: Option<i32>,
    /// The Redis that holds sessions for all replicas; absent means that each keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_redis: Option<SessionRedis>,
}

/// A Redis that holds sessions. Its password is in the environment (`THV_SESSION_REDIS_PASSWORD`), or in a file that is named there
/// (`PORTCULLIS_SESSION_REDIS_PASSWORD_FILE`), never here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRedis {
    /// Host and port.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Number of the database.
    #[serde(skip_serializing_if = "is_zero")]
    pub db: u32,
    /// What every key starts with; empty means the proxy's default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_prefix: String,
    /// Connects with TLS; absent means in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<SessionRedisTls>,
}

/// How the TLS certificate of Redis is checked. ToolHive writes these members in camel case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionRedisTls {
    /// Turns certificate checks off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// File with the only roots that are trusted; empty means the system's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_cert_file: String,
}

impl RunConfig {
    /// Reads a document of ours or of ToolHive's operator.
    ///
    /// Normalised on the way: a missing `schema_version` is [`SCHEMA_VERSION`]; `proxy_mode` equals the transport
    /// unless that is stdio, where it is streamable HTTP if not said; `oidc_config` takes the place of what the chain's `auth` entry
    /// says of a login.
    ///
    /// # Errors
    /// Names the member, what is wrong with it and what to write instead. A guard that would not be there is wrong too.
    pub fn parse(document: &[u8]) -> Result<Self, ParseError> {
        let value: Value = serde_json::from_slice(document)
            .map_err(|error| ParseError::new("document", format!("is not JSON: {error}"), "write one JSON object"))?;
        let Value::Object(members) = &value else {
            let problem = wrong_type(&value, "one JSON object");
            return Err(ParseError { field: "document".to_owned(), ..ParseError::custom(problem) });
        };
        let has_transport = |(name, value): (&String, &Value)| {
            fold(name) == "transport" && !value.is_null() && value.as_str() != Some("")
        };
        if !members.iter().any(has_transport) {
            let fix = "set it to \"stdio\", \"sse\" or \"streamable-http\"";
            return Err(ParseError::new("transport", "is missing or empty", fix));
        }
        let unbuilt = chain::unbuilt(members);
        let unknown = Unknown::default();
        let mut config: Self = decode::read_noting(value, "", &unknown)?;
        chain::note_unknown(&config, &unknown);
        config.unknown_members = unknown.into_list();
        match config.transport {
            Transport::Stdio => {}
            Transport::Sse => config.proxy_mode = ProxyMode::Sse,
            Transport::StreamableHttp => config.proxy_mode = ProxyMode::StreamableHttp,
        }
        if config.name.is_empty() {
            return Err(ParseError::new("name", "is missing or empty", "set it to a non-empty string"));
        }
        if config.schema_version.is_empty() {
            SCHEMA_VERSION.clone_into(&mut config.schema_version);
        } else if config.schema_version != SCHEMA_VERSION {
            let problem = format!("{:?} is not supported", config.schema_version);
            return Err(ParseError::new("schema_version", problem, format!("use {SCHEMA_VERSION:?}")));
        }
        config.portcullis.check()?;
        if let Some(problem) = config.allowed_origins.iter().find_map(|origin| origin_problem(origin)) {
            return Err(ParseError { field: "allowed_origins".to_owned(), ..ParseError::custom(problem) });
        }
        if let Some(member) = unbuilt.filter(|_| config.middleware_configs.is_empty()) {
            let problem = "asks for a guard that is not built yet";
            return Err(ParseError::new(member, problem, "remove it, or use a proxy that has it"));
        }
        chain::check(&config)?;
        config.repeat_login()?;
        Ok(config)
    }

    /// Makes callers log in as `oidc` says, in a document whose chain is still to be made.
    pub fn require_login(&mut self, oidc: OidcConfig) {
        self.thv_ca_bundle.clone_from(&oidc.ca_cert_path);
        self.jwks_auth_token_file.clone_from(&oidc.auth_token_file);
        self.oidc_config = Some(oidc);
    }

    /// Whether callers have to log in.
    pub fn requires_login(&self) -> bool {
        self.oidc_config.is_some()
    }

    /// Repeats the login in the chain (toolhive-0.63 §3): two that differ would leave open which one guards.
    fn repeat_login(&mut self) -> Result<(), ParseError> {
        let Some(oidc) = &self.oidc_config else { return Ok(()) };
        if self.middleware_configs.is_empty() {
            return Ok(());
        }
        let mut entries = self.middleware_configs.iter_mut().enumerate().filter(|(_, entry)| entry.kind == AUTH);
        let (Some((at, entry)), None) = (entries.next(), entries.next()) else {
            let problem = "OIDC configuration requires exactly one authentication middleware";
            return Err(ParseError::new("middleware_configs", problem, "write one entry of type \"auth\""));
        };
        let path = format!("middleware_configs[{at}].parameters");
        if entry.parameters.is_null() {
            let problem = "authentication middleware parameters cannot be null";
            return Err(ParseError::new(path, problem, "write {} or leave oidc_config out"));
        }
        AuthParameters::read(entry.parameters.clone(), &path)?;
        // Strings and booleans always serialize; no object would be refused.
        entry.parameters = serde_json::to_value(AuthParameters { oidc_config: Some(oidc.clone()) }).unwrap_or_default();
        Ok(())
    }

    /// Writes the document as ToolHive does: two-space indent, no newline at the end, `<`, `>` and `&` escaped.
    pub fn to_json(&self) -> String {
        // These characters stand only inside strings, so the text can be escaped as a whole.
        let escape = |text: String| {
            text.replace('&', "\\u0026")
                .replace('<', "\\u003c")
                .replace('>', "\\u003e")
                .replace('\u{2028}', "\\u2028")
                .replace('\u{2029}', "\\u2029")
        };
        // Writing strings, integers and maps with string keys to memory cannot fail.
        serde_json::to_string_pretty(self).map(escape).unwrap_or_default()
    }
}

impl Transport {
    /// The word in the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Sse => "sse",
            Self::StreamableHttp => "streamable-http",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ProxyMode {
    /// The word in the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::StreamableHttp => "streamable-http",
        }
    }
}

impl fmt::Display for ProxyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl MiddlewareConfig {
    /// An entry of the chain.
    pub fn new(kind: impl Into<String>, parameters: Value) -> Self {
        Self { kind: kind.into(), parameters }
    }
}

/// In the order in which the type of the parameters declares their members.
impl Serialize for MiddlewareConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Entry<'a> {
            r#type: &'a str,
            parameters: chain::Typed,
        }
        Entry { r#type: &self.kind, parameters: chain::typed(self) }.serialize(serializer)
    }
}

/// A Go duration, as ToolHive writes it; or integer nanoseconds, as older documents have it. 0 is the same as absent.
fn positive_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let nanos = match Value::deserialize(deserializer)? {
        Value::String(text) if text.is_empty() => 0,
        value => duration::nanoseconds(&value).map_err(D::Error::custom)?,
    };
    let nanos =
        u64::try_from(nanos).map_err(|_| D::Error::custom("is negative; write a positive duration such as \"30s\""))?;
    Ok((nanos > 0).then(|| Duration::from_nanos(nanos)))
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(D::Error::custom("is missing or empty; set it to a non-empty string")) } else { Ok(text) }
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn go_duration<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = |value: Duration| duration::format(i64::try_from(value.as_nanos()).unwrap_or(i64::MAX));
    value.map(text).serialize(serializer)
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
