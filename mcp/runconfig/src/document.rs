//! The document itself.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{
    Additions, AuditConfig, AuditParameters, AuthParameters, HeaderForward, OidcConfig, Parameters, ParseError,
    PermissionProfile,
    audit::AUDIT,
    auth::AUTH,
    duration,
    members::{Members, wrong_type},
    tool_filter::{self, TOOL_CALL_FILTER, TOOL_FILTER, ToolFilterParameters, ToolOverride},
    webhook::{MUTATING, VALIDATING, WebhookConfig, WebhookParameters},
};

/// The version of the document that is written, and assumed where none is given.
pub const SCHEMA_VERSION: &str = "v0.1.0";

/// How a proxy for one MCP server is to run. Members are declared in the order ToolHive writes them.
///
/// Keys that this version does not act on (`authz_config`, `telemetry_config` and the rest) are kept in
/// [`extra`](Self::extra) as they were read, and written back after the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunConfig {
    /// Version of the document, [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// `metadata.generation` of the MCPServer this was made from; 0 means unversioned.
    #[serde(skip_serializing_if = "is_zero")]
    pub mcpserver_generation: i64,
    /// Container image of the MCP server; empty for a remote one.
    pub image: String,
    /// URL of a remote MCP server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remote_url: String,
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
    /// Who may log in; `None` where nobody has to. The `auth` entry of the chain says the same: see
    /// [`require_login`](Self::require_login).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config: Option<OidcConfig>,
    /// Which requests are written down; `None` where none are. Read only where `middleware_configs` is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_config: Option<AuditConfig>,
    /// Whether `X-Forwarded-*` from the client is believed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trust_proxy_headers: bool,
    /// Whether the server knows POST only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// How long an idle session lives; absent means the proxy's default of two hours.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "go_duration")]
    pub session_ttl: Option<Duration>,
    /// Most bytes of a request's body; 0 means 8 MiB. Where it is set, it replaces the limits of `bodylimit` entries.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_request_body_size: u64,
    /// How long a request may take to arrive, head and body; absent means 30 seconds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "go_duration")]
    pub proxy_read_timeout: Option<Duration>,
    /// What the proxy speaks to its clients. Equals the transport unless that is stdio.
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
    /// Members this version does not act on.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How an MCP server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyMode {
    /// HTTP with server-sent events.
    Sse,
    /// Streamable HTTP.
    #[default]
    StreamableHttp,
}

/// One entry of the middleware chain.
#[derive(Clone, Debug, PartialEq)]
pub struct MiddlewareConfig {
    /// The middleware's `type`.
    pub kind: String,
    /// Its parameters, as its type defines them; null where it has none.
    pub parameters: Value,
}

/// Replicas of the backend and where their sessions are shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScalingConfig {
    /// Replicas of the MCP server; absent leaves them to an autoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_replicas: Option<i32>,
    /// The Redis that holds sessions for all replicas; absent means that each keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_redis: Option<SessionRedis>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A Redis that holds sessions. Its password is in the environment (`THV_SESSION_REDIS_PASSWORD`), never here.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionRedis {
    /// Host and port.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Number of the database.
    #[serde(skip_serializing_if = "is_zero")]
    pub db: i32,
    /// What every key starts with; empty means the proxy's default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_prefix: String,
    /// Connects with TLS; absent means in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<SessionRedisTls>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How the TLS certificate of Redis is checked. ToolHive writes these members in camel case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRedisTls {
    /// Turns certificate checks off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// File with the only roots that are trusted; empty means the system's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_cert_file: String,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

const TRANSPORTS: [(&str, Transport); 3] =
    [("stdio", Transport::Stdio), ("sse", Transport::Sse), ("streamable-http", Transport::StreamableHttp)];
const PROXY_MODES: [(&str, ProxyMode); 2] = [("sse", ProxyMode::Sse), ("streamable-http", ProxyMode::StreamableHttp)];

impl RunConfig {
    /// Reads a document of ours or of ToolHive's operator.
    ///
    /// Normalised on the way: a missing `schema_version` is [`SCHEMA_VERSION`]; `proxy_mode` equals the transport
    /// unless that is stdio, where it is streamable HTTP if not said; `oidc_config` takes the place of what the chain's `auth` entry
    /// says of a login.
    ///
    /// # Errors
    /// Names the member, what is wrong with it and what to write instead.
    pub fn parse(document: &[u8]) -> Result<Self, ParseError> {
        let value: Value = serde_json::from_slice(document)
            .map_err(|error| ParseError::new("document", format!("is not JSON: {error}"), "write one JSON object"))?;
        if !value.is_object() {
            return Err(wrong_type("document", &value, "one JSON object"));
        }
        let mut members = Members::of(value, "")?;
        let transport = members.word("transport", &TRANSPORTS)?.ok_or_else(|| {
            ParseError::new("transport", "is missing or empty", "set it to \"stdio\", \"sse\" or \"streamable-http\"")
        })?;
        let proxy_mode = members.word("proxy_mode", &PROXY_MODES)?;
        let profile = members.value("permission_profile");
        let headers = members.value("header_forward");
        let oidc = members.value("oidc_config");
        let oidc_path = members.path("oidc_config");
        let audit = members.value("audit_config");
        let scaling = members.value("scaling_config");
        let additions = members.value("portcullis");
        let mut config = Self {
            schema_version: schema_version(&mut members)?,
            mcpserver_generation: members.integer("mcpserver_generation", 0, i64::MAX)?.unwrap_or(0),
            image: members.string("image")?.unwrap_or_default(),
            remote_url: members.string("remote_url")?.unwrap_or_default(),
            cmd_args: members.strings("cmd_args")?,
            name: members.required_string("name")?,
            container_name: members.string("container_name")?.unwrap_or_default(),
            base_name: members.string("base_name")?.unwrap_or_default(),
            transport,
            host: members.string("host")?.unwrap_or_default(),
            port: members.integer("port", 0, 65_535)?.unwrap_or(0),
            target_port: members.integer("target_port", 0, 65_535)?.unwrap_or(0),
            target_host: members.string("target_host")?.unwrap_or_default(),
            allowed_origins: members.strings("allowed_origins")?,
            permission_profile_name_or_path: members.string("permission_profile_name_or_path")?.unwrap_or_default(),
            permission_profile: profile
                .map(|value| PermissionProfile::from_value(value, "permission_profile"))
                .transpose()?,
            env_vars: members.string_map("env_vars")?,
            debug: members.boolean("debug")?,
            volumes: members.strings("volumes")?,
            container_labels: members.string_map("container_labels")?,
            oidc_config: oidc.map(|value| OidcConfig::from_value(value, &oidc_path)).transpose()?,
            audit_config: audit.map(|value| Parameters::read(value, "audit_config")).transpose()?,
            trust_proxy_headers: members.boolean("trust_proxy_headers")?,
            stateless: members.boolean("stateless")?,
            session_ttl: positive_duration(&mut members, "session_ttl", "2h")?,
            max_request_body_size: members.integer("max_request_body_size", 0, i64::MAX)?.unwrap_or(0),
            proxy_read_timeout: positive_duration(&mut members, "proxy_read_timeout", "30s")?,
            proxy_mode: match transport {
                Transport::Stdio => proxy_mode.unwrap_or_default(),
                Transport::Sse => ProxyMode::Sse,
                Transport::StreamableHttp => ProxyMode::StreamableHttp,
            },
            thv_ca_bundle: members.string("thv_ca_bundle")?.unwrap_or_default(),
            jwks_auth_token_file: members.string("jwks_auth_token_file")?.unwrap_or_default(),
            tools_filter: members.strings("tools_filter")?,
            tools_override: tool_filter::overrides(&mut members)?,
            middleware_configs: chain(&mut members, "middleware_configs")?,
            additional_middleware_configs: chain(&mut members, "additional_middleware_configs")?,
            validating_webhooks: webhooks(&mut members, "validating_webhooks")?,
            mutating_webhooks: webhooks(&mut members, "mutating_webhooks")?,
            endpoint_prefix: members.string("endpoint_prefix")?.unwrap_or_default(),
            header_forward: headers.map(HeaderForward::from_value).transpose()?,
            scaling_config: scaling.map(ScalingConfig::from_value).transpose()?,
            portcullis: additions.map(Additions::from_value).transpose()?.unwrap_or_default(),
            extra: members.rest(),
        };
        config.repeat_login()?;
        Ok(config)
    }

    /// Makes callers log in as `oidc` says: in the document's own member and, where it has a chain, in that chain's `auth` entry.
    ///
    /// # Errors
    /// The chain has no `auth` entry, more than one, or one whose parameters are no object.
    pub fn require_login(&mut self, oidc: OidcConfig) -> Result<(), ParseError> {
        self.thv_ca_bundle.clone_from(&oidc.ca_cert_path);
        self.jwks_auth_token_file.clone_from(&oidc.auth_token_file);
        self.oidc_config = Some(oidc);
        self.repeat_login()
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
        let read = AuthParameters::read(entry.parameters.clone(), &path)?;
        *entry = AuthParameters { oidc_config: Some(oidc.clone()), ..read }.middleware();
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

/// Parameters whose members ToolHive writes in another order than the alphabet's.
impl Serialize for MiddlewareConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Entry<'a, P> {
            r#type: &'a str,
            parameters: P,
        }
        let (r#type, parameters) = (self.kind.as_str(), &self.parameters);
        if let MUTATING | VALIDATING = r#type
            && let Some(parameters) = faithful(WebhookParameters::read(parameters.clone(), ""), parameters)
        {
            return Entry { r#type, parameters }.serialize(serializer);
        }
        if let TOOL_FILTER | TOOL_CALL_FILTER = r#type
            && let Some(parameters) = faithful(ToolFilterParameters::read(parameters.clone(), ""), parameters)
        {
            return Entry { r#type, parameters }.serialize(serializer);
        }
        if r#type == AUDIT
            && let Some(parameters) = faithful(AuditParameters::read(parameters.clone(), ""), parameters)
        {
            return Entry { r#type, parameters }.serialize(serializer);
        }
        if r#type == AUTH
            && let Some(parameters) = faithful(AuthParameters::read(parameters.clone(), ""), parameters)
        {
            return Entry { r#type, parameters }.serialize(serializer);
        }
        Entry { r#type, parameters }.serialize(serializer)
    }
}

impl ScalingConfig {
    fn from_value(value: Value) -> Result<Self, ParseError> {
        let mut members = Members::of(value, "scaling_config")?;
        let backend_replicas = members.integer("backend_replicas", 0, i32::MAX.into())?;
        let redis = members.value("session_redis");
        let path = members.path("session_redis");
        let session_redis = redis.map(|value| SessionRedis::from_value(value, &path)).transpose()?;
        Ok(Self { backend_replicas, session_redis, extra: members.rest() })
    }
}

impl SessionRedis {
    fn from_value(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        let tls = members.value("tls");
        let tls_path = members.path("tls");
        Ok(Self {
            address: members.string("address")?.unwrap_or_default(),
            db: members.integer("db", 0, i32::MAX.into())?.unwrap_or(0),
            key_prefix: members.string("key_prefix")?.unwrap_or_default(),
            tls: tls.map(|value| SessionRedisTls::from_value(value, &tls_path)).transpose()?,
            extra: members.rest(),
        })
    }
}

impl SessionRedisTls {
    fn from_value(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        Ok(Self {
            insecure_skip_verify: members.boolean("insecureSkipVerify")?,
            ca_cert_file: members.string("caCertFile")?.unwrap_or_default(),
            extra: members.rest(),
        })
    }
}

/// The typed form of `parameters`, where it says exactly the same.
fn faithful<T: Serialize>(typed: Result<T, ParseError>, parameters: &Value) -> Option<T> {
    typed.ok().filter(|typed| serde_json::to_value(typed).is_ok_and(|value| value == *parameters))
}

fn schema_version(members: &mut Members) -> Result<String, ParseError> {
    match members.string("schema_version")?.filter(|version| !version.is_empty()) {
        None => Ok(SCHEMA_VERSION.to_owned()),
        Some(version) if version == SCHEMA_VERSION => Ok(version),
        Some(version) => Err(ParseError::new(
            "schema_version",
            format!("{version:?} is not supported"),
            format!("use {SCHEMA_VERSION:?}"),
        )),
    }
}

/// A Go duration, as ToolHive writes it; or integer nanoseconds, as older documents have it. 0 is the same as absent.
fn positive_duration(members: &mut Members, key: &str, example: &str) -> Result<Option<Duration>, ParseError> {
    let path = members.path(key);
    let fix = |what: &str| format!("{what} such as {example:?}");
    let nanos = match members.value(key) {
        None => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => {
            let fix = || format!("for example {example:?}");
            duration::parse(&text).map_err(|error| ParseError::new(&path, error.to_string(), fix()))?
        }
        Some(value) => value
            .as_i64()
            .ok_or_else(|| wrong_type(&path, &value, &(fix("a Go duration") + ", or integer nanoseconds")))?,
    };
    match u64::try_from(nanos) {
        Ok(0) => Ok(None),
        Ok(nanos) => Ok(Some(Duration::from_nanos(nanos))),
        Err(_) => Err(ParseError::new(path, "is negative", fix("write a positive duration"))),
    }
}

fn chain(members: &mut Members, key: &str) -> Result<Vec<MiddlewareConfig>, ParseError> {
    let entries = members.list(key)?;
    entries
        .into_iter()
        .enumerate()
        .map(|(at, entry)| {
            let mut entry = Members::of(entry, &format!("{}[{at}]", members.path(key)))?;
            let kind = entry.required_string("type")?;
            Ok(MiddlewareConfig { kind, parameters: entry.value("parameters").unwrap_or(Value::Null) })
        })
        .collect()
}

fn webhooks(members: &mut Members, key: &str) -> Result<Vec<WebhookConfig>, ParseError> {
    let entries = members.list(key)?;
    entries
        .into_iter()
        .enumerate()
        .map(|(at, entry)| WebhookConfig::from_value(entry, &format!("{}[{at}]", members.path(key))))
        .collect()
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn go_duration<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = |value: Duration| duration::format(i64::try_from(value.as_nanos()).unwrap_or(i64::MAX));
    value.map(text).serialize(serializer)
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
