//! The RunConfig document an MCP proxy is started with, and the types of the request webhooks it names.
//!
//! The operator writes one RunConfig per MCP server into a ConfigMap; the proxy reads it at start. Both sides may be
//! swapped for ToolHive's, so key names, their casing and their order are ToolHive's. Nothing here does IO.
//!
//! ```
//! use mcp_runconfig::{RunConfig, Transport};
//!
//! let document = br#"{"schema_version":"v0.1.0","image":"everything:1","name":"demo","transport":"stdio",
//!     "host":"0.0.0.0","port":8080,"middleware_configs":[{"type":"mcp-parser","parameters":{}}]}"#;
//! let config = RunConfig::parse(document)?;
//! assert_eq!(config.transport, Transport::Stdio);
//! assert_eq!(config.middleware_configs[0].kind, "mcp-parser");
//!
//! let problem = RunConfig::parse(br#"{"name":"demo","transport":"stdio","port":"8080"}"#).unwrap_err();
//! assert_eq!(problem.field, "port");
//! # Ok::<(), mcp_runconfig::ParseError>(())
//! ```

mod decode;
mod document;
pub mod duration;
pub mod endpoint;
pub mod environment;
mod error;
pub mod exit_status;
mod names;
mod parameters;
pub mod paths;
mod profile;
mod redis;
pub mod webhook;

pub use document::additions::{Additions, trusted_proxies};
pub use document::chain::{
    self, AUDIT, AUTHORIZATION, AWS_STS, AuditConfig, AuditParameters, AuthParameters, AuthorizationParameters,
    AuthzConfig, AuthzKind, AwsStsConfig, AwsStsParameters, CedarConfig, ClaimMapping, HeaderForward,
    HeaderForwardParameters, LONGEST_PERIOD, MCP_ENDPOINTS, OidcConfig, PdpConfig, PdpContext, PdpHttp, RATE_LIMIT,
    RateLimit, RateLimitConfig, RateLimitParameters, RemoteAuthConfig, RoleMapping, SHADOW_AUTHORIZATION, TELEMETRY,
    TOKEN_EXCHANGE, TOKEN_INJECTION, TOOL_CALL_FILTER, TOOL_FILTER, TelemetryConfig, TelemetryParameters,
    TokenExchangeConfig, TokenExchangeParameters, ToolFilterParameters, ToolOverride, ToolRateLimit,
    credential_header_problem, is_aws_service, is_claim_header, is_export_header, is_header_of_aws,
    is_header_of_credential, is_reserved_header, same_header, secret_identifier, token_type,
};
pub use document::{
    MiddlewareConfig, ProxyMode, RunConfig, SCHEMA_VERSION, ScalingConfig, SessionRedis, SessionRedisTls, Transport,
};
pub use error::ParseError;
pub use parameters::{BodyLimitParameters, NoParameters, OriginParameters, Parameters, origin_problem};
pub use profile::{InboundNetwork, NetworkPermissions, OutboundNetwork, PermissionProfile};
pub use redis::{RedisProblem, host_and_port, key_prefix_problem};
