//! Request webhooks: how one is configured (toolhive-runner §3.2) and what goes over the wire (§3.5, §3.7).

mod config;
mod problem;
mod selector;
mod wire;

pub use config::{
    FailurePolicy, InvalidWebhook, Mode, Timeout, TlsConfig, WebhookAdditions, WebhookConfig, WebhookParameters,
};
pub use problem::Problem;
pub use selector::{Match, Selector, TOOL_CALL};
pub use wire::{Context, Payload, Principal, Response};

use std::time::Duration;

/// Middleware `type` of webhooks that may change a request.
pub const MUTATING: &str = "mutating-webhook";
/// Middleware `type` of webhooks that judge a request.
pub const VALIDATING: &str = "validating-webhook";
/// `version` of every payload.
pub const PAYLOAD_VERSION: &str = "v0.1.0";
/// How long a webhook may take when nothing else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest timeout that may be set.
pub const MIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest timeout that may be set.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest request body, in bytes, that is read from an MCP client for its webhooks.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Longest answer, in bytes, that is read from a webhook.
pub const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// The one `patch_type` there is.
pub const PATCH_TYPE: &str = "json_patch";
/// Header that carries `sha256=` and the HMAC of `TIMESTAMP.BODY` in lower-case hex.
pub const SIGNATURE_HEADER: &str = "X-ToolHive-Signature";
/// Header that carries the Unix seconds the signature was made at.
pub const TIMESTAMP_HEADER: &str = "X-ToolHive-Timestamp";
