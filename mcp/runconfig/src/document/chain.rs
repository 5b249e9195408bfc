//! The middleware chain: which types there are, in which order, which the proxies of this version have, and which members of a document
//! ask for each. The modules below have the names and parameters of one type each.

mod audit;
mod auth;
mod authorization;
mod aws_sts;
mod header_forward;
mod rate_limit;
mod remote_auth;
mod telemetry;
mod token_exchange;
mod tool_filter;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use self::{
    audit::{AUDIT, AuditConfig, AuditParameters},
    auth::{AUTH, AuthParameters, OidcConfig},
    authorization::{
        AUTHORIZATION, AuthorizationParameters, AuthzConfig, AuthzKind, CedarConfig, ClaimMapping, PdpConfig,
        PdpContext, PdpHttp, SHADOW_AUTHORIZATION,
    },
    aws_sts::{AWS_STS, AwsStsConfig, AwsStsParameters, RoleMapping, is_aws_service},
    header_forward::{
        HeaderForward, HeaderForwardParameters, credential_header_problem, is_claim_header, is_header_of_aws,
        is_header_of_credential, is_reserved_header, same_header,
    },
    rate_limit::{LONGEST_PERIOD, RATE_LIMIT, RateLimit, RateLimitConfig, RateLimitParameters, ToolRateLimit},
    remote_auth::{RemoteAuthConfig, TOKEN_INJECTION, secret_identifier},
    telemetry::{TELEMETRY, TelemetryConfig, TelemetryParameters, is_export_header},
    token_exchange::{TOKEN_EXCHANGE, TokenExchangeConfig, TokenExchangeParameters, token_type},
    tool_filter::{TOOL_CALL_FILTER, TOOL_FILTER, ToolFilterParameters, ToolOverride},
};
use crate::{
    MiddlewareConfig, ParseError, RunConfig,
    decode::read_noting,
    names::{Unknown, fold},
    webhook::{self, WebhookConfig, WebhookParameters},
};

/// `type` of the check for which web pages a request may come.
pub const ORIGIN: &str = "origin";
/// `type` of the bound on request bodies.
pub const BODY_LIMIT: &str = "bodylimit";
/// `type` of the middleware that reads each message.
pub const PARSER: &str = "mcp-parser";
/// `type` of what reports to ToolHive's vendor: accepted, and does nothing.
pub const USAGE_METRICS: &str = "usagemetrics";
/// `type` of what adds headers to requests to a remote server.
pub const HEADER_FORWARD: &str = "header-forward";
/// `type` of the middleware that answers for one that panicked.
pub const RECOVERY: &str = "recovery";

/// The types that may change or refuse a call. Proxies put [`RATE_LIMIT`] behind all of them, wherever a document has it: what they refuse costs nothing.
pub const BEFORE_RATE_LIMIT: [&str; 5] =
    [TOOL_FILTER, TOOL_CALL_FILTER, webhook::MUTATING, webhook::VALIDATING, AUTHORIZATION];

/// The types behind which proxies put what gets a credential for the server, wherever a document has it: what they refuse costs nobody a credential.
pub const BEFORE_CREDENTIALS: [&str; 7] =
    [PARSER, TOOL_FILTER, TOOL_CALL_FILTER, webhook::MUTATING, webhook::VALIDATING, AUTHORIZATION, RATE_LIMIT];

/// The types that show the server a credential in place of the caller's. A chain has one of them at most.
pub const CREDENTIALS: [&str; 3] = [AWS_STS, TOKEN_EXCHANGE, TOKEN_INJECTION];

/// The longest request body where nothing else is said, in bytes.
pub const DEFAULT_BODY_LIMIT: u64 = 8 << 20;
/// The longest request body that a proxy reads, whatever its document says, in bytes: it holds bodies whole, in memory.
pub const MAX_BODY_LIMIT: u64 = 256 << 20;

/// Parameters in a type that declares members in the order in which ToolHive writes them.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Typed {
    Audit(AuditParameters),
    Auth(AuthParameters),
    Authorization(AuthorizationParameters),
    AwsSts(AwsStsParameters),
    RateLimit(RateLimitParameters),
    Telemetry(TelemetryParameters),
    TokenExchange(TokenExchangeParameters),
    Tools(ToolFilterParameters),
    Webhooks(WebhookParameters),
    /// They have one member at most, or no operator writes them.
    Other(Value),
}

/// A type of middleware. What operators write of it, what proxies make of a document without a chain, and what they refuse follows from its row.
struct Row {
    kind: &'static str,
    /// Whether the proxies of this version have it.
    built: bool,
    /// The members of a document that ask for it, each after its path in an entry of the chain.
    members: &'static [(&'static str, &'static str)],
    /// Whether they count only in a document that lists no chain.
    yields: bool,
    /// The beginnings of the flags by which ToolHive's `run` is asked for it.
    flags: &'static [&'static str],
    /// The parameters that a document's members make; none where they do not ask for it.
    of: fn(&RunConfig) -> Option<Typed>,
    /// Reads parameters at a path, and notes the members that are not known.
    read: fn(Value, &str, &Unknown) -> Result<Typed, ParseError>,
}

const fn built(kind: &'static str) -> Row {
    Row { built: true, ..later(kind) }
}

const fn later(kind: &'static str) -> Row {
    Row {
        kind,
        built: false,
        members: &[],
        yields: false,
        flags: &[],
        of: |_| None,
        read: |value, _, _| Ok(Typed::Other(value)),
    }
}

/// Every type of middleware that an operator writes, the outermost first (toolhive-operator §3).
static TABLE: &[Row] = &[
    Row { members: &[("parameters.allowed_origins", "allowed_origins")], flags: &["allowed-origins"], ..built(ORIGIN) },
    Row {
        members: &[("parameters.max_bytes", "max_request_body_size")],
        of: |config| {
            let own = Some(config.max_request_body_size).filter(|bytes| *bytes > 0);
            Some(Typed::Other(json!({"max_bytes": own.unwrap_or(DEFAULT_BODY_LIMIT)})))
        },
        ..built(BODY_LIMIT)
    },
    Row {
        members: &[("parameters.config_data", "audit_config"), ("parameters.config_path", "audit_config_path")],
        yields: true,
        flags: &["audit-", "enable-audit"],
        of: |RunConfig { audit_config, audit_config_path, transport, .. }| {
            AuditParameters::of(audit_config.as_ref(), audit_config_path, transport.as_str()).map(Typed::Audit)
        },
        read: |value, path, unknown| read_noting(value, path, unknown).map(Typed::Audit),
        ..built(AUDIT)
    },
    Row {
        members: &[("parameters.oidc_config", "oidc_config")],
        flags: &["jwks-", "oidc-", "resource-url"],
        of: |config| Some(Typed::Auth(AuthParameters { oidc_config: config.oidc_config.clone() })),
        read: |value, path, unknown| read_noting(value, path, unknown).map(Typed::Auth),
        ..built(AUTH)
    },
    Row { members: &[("", "upstream_swap_config"), ("", "embedded_auth_server_config")], ..later("upstreamswap") },
    later("strip-auth"),
    Row {
        members: &[("parameters.token_exchange_config", "token_exchange_config")],
        yields: true,
        flags: &["token-exchange-"],
        of: |config| TokenExchangeParameters::of(config).map(Typed::TokenExchange),
        read: |value, path, unknown| read_noting(value, path, unknown).map(Typed::TokenExchange),
        ..built(TOKEN_EXCHANGE)
    },
    TOOLS,
    Row { kind: TOOL_CALL_FILTER, ..TOOLS },
    Row { of: |_| Some(Typed::Other(json!({}))), ..built(PARSER) },
    Row {
        members: &[("parameters.config", "telemetry_config")],
        yields: true,
        of: |RunConfig { telemetry_config, name, transport, .. }| {
            let config = telemetry_config.clone().filter(TelemetryConfig::is_on)?;
            let (server_name, transport) = (name.clone(), transport.to_string());
            Some(Typed::Telemetry(TelemetryParameters { config, server_name, transport }))
        },
        read: |value, path, unknown| read_noting(value, path, unknown).map(Typed::Telemetry),
        ..built(TELEMETRY)
    },
    Row {
        members: &[
            ("parameters.config", "rate_limit_config"),
            ("parameters.namespace", "rate_limit_namespace"),
            ("parameters.redis_addr", "scaling_config.session_redis.address"),
            ("parameters.redis_tls", "scaling_config.session_redis.tls"),
        ],
        yields: true,
        of: |config| RateLimitParameters::of(config).map(Typed::RateLimit),
        read: |value, path, unknown| read_noting(value, path, unknown).map(Typed::RateLimit),
        ..built(RATE_LIMIT)
    },
    Row {
        kind: webhook::MUTATING,
        members: &[("parameters.webhooks", "mutating_webhooks")],
        of: |config| webhooks(config, &config.mutating_webhooks),
        ..WEBHOOKS
    },
    Row {
        members: &[("parameters.webhooks", "validating_webhooks")],
        of: |config| webhooks(config, &config.validating_webhooks),
        ..WEBHOOKS
    },
    built(USAGE_METRICS),
    Row {
        members: &[("parameters.config_data", "authz_config"), ("parameters.config_path", "authz_config_path")],
        yields: true,
        flags: &["authz-"],
        of: |RunConfig { authz_config, authz_config_path, .. }| {
            AuthorizationParameters::of(authz_config.as_ref(), authz_config_path).map(Typed::Authorization)
        },
        // The default `read` keeps the order of members, which tells where policies were written.
        ..built(AUTHORIZATION)
    },
    Row {
        members: &[("parameters.config_data", "portcullis.shadow_policies")],
        of: |config| {
            let policies = config.portcullis.shadow_policies.as_ref();
            AuthorizationParameters::of(policies, "").map(Typed::Authorization)
        },
        ..built(SHADOW_AUTHORIZATION)
    },
    Row {
        members: &[("parameters.aws_sts_config", "aws_sts_config")],
        of: |config| AwsStsParameters::of(config).map(Typed::AwsSts),
        read: |value, path, unknown| read_noting(value, path, unknown).map(Typed::AwsSts),
        ..built(AWS_STS)
    },
    Row {
        members: &[
            ("parameters.add_headers_from_secret", "header_forward.add_headers_from_secret"),
            ("parameters.add_headers", "header_forward.add_plaintext_headers"),
            ("type", "header_forward"),
        ],
        // Headers with secret values are in the document's own member alone.
        of: |config| {
            let headers = &config.header_forward.as_ref()?.add_plaintext_headers;
            (!headers.is_empty()).then(|| Typed::Other(json!({"add_headers": headers})))
        },
        ..built(HEADER_FORWARD)
    },
    // The document's own member asks for it, and no operator writes an entry.
    Row { members: &[("parameters", "remote_auth_config")], ..built(TOKEN_INJECTION) },
    Row { of: |_| Some(Typed::Other(Value::Null)), ..built(RECOVERY) },
];

const TOOLS: Row = Row {
    members: &[("parameters.filter_tools", "tools_filter"), ("parameters.tools_override", "tools_override")],
    yields: true,
    flags: &["tools"],
    of: |RunConfig { tools_filter, tools_override, .. }| {
        let (filter_tools, tools_override) = (tools_filter.clone(), tools_override.clone());
        let asked = !(filter_tools.is_empty() && tools_override.is_empty());
        asked.then_some(Typed::Tools(ToolFilterParameters { filter_tools, tools_override }))
    },
    read: |value, path, unknown| read_noting(value, path, unknown).map(Typed::Tools),
    ..built(TOOL_FILTER)
};

const WEBHOOKS: Row = Row {
    yields: true,
    flags: &["webhook-"],
    read: |value, path, unknown| read_noting(value, path, unknown).map(Typed::Webhooks),
    ..built(webhook::VALIDATING)
};

fn webhooks(config: &RunConfig, webhooks: &[WebhookConfig]) -> Option<Typed> {
    let parameters = || WebhookParameters {
        webhooks: webhooks.to_vec(),
        server_name: config.name.clone(),
        transport: config.transport.to_string(),
    };
    (!webhooks.is_empty()).then(|| Typed::Webhooks(parameters()))
}

/// The types that the proxies of this version have.
pub fn built_kinds() -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(|row| row.built).map(|row| row.kind)
}

/// The beginnings of the flags by which ToolHive's `run` is asked for middleware.
pub fn flags() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|row| row.flags).copied()
}

/// The members of a document that the entry of this type is made of, each after its path in the entry.
pub fn members(kind: &str) -> &'static [(&'static str, &'static str)] {
    TABLE.iter().find(|row| row.kind == kind).map_or(&[], |row| row.members)
}

/// The chain that a document's members ask for, the first outermost.
pub fn of(config: &RunConfig) -> Vec<MiddlewareConfig> {
    let entry = |row: &Row| {
        // Strings, integers and maps with string keys always serialize; every type refuses what is no object.
        let parameters = serde_json::to_value((row.of)(config)?).unwrap_or(Value::Bool(false));
        Some(MiddlewareConfig::new(row.kind, parameters))
    };
    TABLE.iter().filter(|row| row.built).filter_map(entry).collect()
}

/// The parameters of an entry, in their type as far as they fit it.
pub(crate) fn typed(MiddlewareConfig { kind, parameters }: &MiddlewareConfig) -> Typed {
    let row = TABLE.iter().find(|row| row.kind == *kind && parameters.is_object());
    let read = |row: &Row| (row.read)(parameters.clone(), "", &Unknown::default()).ok();
    row.and_then(read).unwrap_or_else(|| Typed::Other(parameters.clone()))
}

/// Notes the members of the entries' parameters that are not known.
pub(crate) fn note_unknown(config: &RunConfig, unknown: &Unknown) {
    let lists = [
        ("middleware_configs", &config.middleware_configs),
        ("additional_middleware_configs", &config.additional_middleware_configs),
    ];
    for (list, entries) in lists {
        for (at, MiddlewareConfig { kind, parameters }) in entries.iter().enumerate() {
            if let Some(row) = TABLE.iter().find(|row| row.kind == *kind) {
                // Parameters that do not fit are an error where they are used.
                let _ = (row.read)(parameters.clone(), &format!("{list}[{at}].parameters"), unknown);
            }
        }
    }
}

/// The member of a document, as it spells it, that asks for middleware which the proxies of this version do not have.
pub(crate) fn unbuilt(document: &Map<String, Value>) -> Option<String> {
    let later: Vec<_> = TABLE.iter().filter(|row| !row.built).flat_map(|row| row.members).collect();
    let asks = |name: &str| later.iter().any(|(_, member)| fold(member) == fold(name));
    document.iter().find(|(name, value)| is_set(value) && asks(name)).map(|(name, _)| name.clone())
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        // An empty configuration asks for a guard with its defaults.
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
    }
}

/// Refuses a document whose chain lacks what a member asks for, which would have no effect.
pub(crate) fn check(config: &RunConfig) -> Result<(), ParseError> {
    let chain = &config.middleware_configs;
    if chain.is_empty() {
        return Ok(());
    }
    let set = serde_json::to_value(config).unwrap_or_default();
    let asking = TABLE.iter().filter(|row| row.yields && (row.of)(config).is_some());
    for (_, member) in asking.flat_map(|row| row.members).filter(|(_, member)| set.get(member).is_some()) {
        let has_member = |row: &&Row| row.members.iter().any(|(_, own)| own == member);
        let kinds: Vec<_> = TABLE.iter().filter(has_member).map(|row| row.kind).collect();
        if !chain.iter().any(|entry| kinds.contains(&&*entry.kind)) {
            let problem = "has no effect, as middleware_configs lists the whole chain";
            let fix = format!("add {} there, or leave that list out", kinds.join(" and "));
            return Err(ParseError::new(*member, problem, fix));
        }
    }
    Ok(())
}

/// The name of the ability to serve MCP endpoints alone, beside the types of middleware that a proxy has: without it,
/// [`mcp_paths`](crate::Additions::mcp_paths) and [`open_paths`](crate::Additions::open_paths) would change nothing.
pub const MCP_ENDPOINTS: &str = "mcp-endpoints";

/// The ability of a proxy to tell by `/readyz` whether its server answers.
pub const READYZ: &str = "readyz";

/// The ability to heed `match` and `mode` of a webhook. Without it, a proxy asks every webhook about everything, and does as it says.
pub const WEBHOOK_MATCH: &str = "webhook-match";

/// The abilities of this version's proxies, by name: the types of middleware that they have, what documents may ask for under
/// `portcullis` that guards, and [`READYZ`].
pub fn abilities() -> Vec<String> {
    built_kinds().chain([MCP_ENDPOINTS, READYZ, WEBHOOK_MATCH]).map(str::to_owned).collect()
}

/// Whether middleware of this type judges messages, so that a proxy with it serves MCP endpoints alone.
pub fn judges_messages(kind: &str) -> bool {
    kind == RATE_LIMIT || BEFORE_RATE_LIMIT.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_built_and_has_what_the_members_ask_for() {
        let document = r#"{"name":"x","transport":"stdio","tools_filter":["a"],"header_forward":{"add_plaintext_headers":{"X-A":"1"}},
            "validating_webhooks":[{"name":"w","url":"https://w","failure_policy":"fail"}]}"#;
        let chain = of(&RunConfig::parse(document.as_bytes()).unwrap());
        let kinds: Vec<_> = chain.iter().map(|entry| entry.kind.as_str()).collect();
        let expected =
            [BODY_LIMIT, AUTH, TOOL_FILTER, TOOL_CALL_FILTER, PARSER, webhook::VALIDATING, HEADER_FORWARD, RECOVERY];
        assert_eq!(kinds, expected);
        assert!(kinds.into_iter().all(|kind| built_kinds().any(|built| built == kind)));
    }
}
