//! `spec.config` of a VirtualMCPServer: the document that the virtual server itself reads.

mod aggregation;
mod incoming;
mod operational;
mod outgoing;
mod telemetry;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    aggregation::{
        Aggregation, ConflictResolution, ConflictResolutionConfig, StaticBackend, StaticBackendTransport,
        StaticBackendType, ToolVisibility, WorkloadTools,
    },
    incoming::{IncomingAuthConfig, IncomingAuthzConfig, IncomingOidcConfig},
    operational::{
        CircuitBreaker, FailureHandling, ListChanged, LogLevel, Operational, PartialFailureMode, SessionStorageConfig,
        SessionStorageTlsConfig, Timeouts,
    },
    outgoing::{
        AwsRoleMapping, AwsStsStrategy, BackendAuthStrategy, HeaderInjectionStrategy, OboStrategy, OutgoingAuthConfig,
        TokenExchangeStrategy, UpstreamInjectStrategy, XaaStrategy,
    },
    telemetry::{AuditConfig, TelemetryConfig},
};
use crate::reference::LenientNameRef;
use crate::v1beta1::{RateLimiting, composite_tool::CompositeTool};

/// How the virtual server behaves. Members that the schema does not know are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct VirtualServerConfig {
    /// How the tools of several servers become one list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
    /// Whether and how requests are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditConfig>,
    /// Servers that are called beside those of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<StaticBackend>>,
    /// A tool that runs a script over the other tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_mode: Option<CodeMode>,
    /// VirtualMCPCompositeToolDefinitions whose tools are offered as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composite_tool_refs: Option<Vec<LenientNameRef>>,
    /// Tools that run a workflow over other tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composite_tools: Option<Vec<CompositeTool>>,
    /// Overwritten with the name in `spec.groupRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_ref: Option<String>,
    /// Overwritten with what `spec.incomingAuth` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incoming_auth: Option<IncomingAuthConfig>,
    /// Texts that the virtual server shows about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Overwritten with the name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Timeouts, health checks and logging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operational: Option<Operational>,
    /// Finding tools by what they do, instead of listing all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Optimizer>,
    /// Overwritten with what `spec.outgoingAuth` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing_auth: Option<OutgoingAuthConfig>,
    /// Names of request headers that are passed on, where `spec.passthroughHeaders` is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub passthrough_headers: Option<Vec<String>>,
    /// How often tools may be called. Needs `spec.sessionStorage` with Redis, where the counts are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limiting: Option<RateLimiting>,
    /// Overwritten with what `spec.sessionStorage` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_storage: Option<SessionStorageConfig>,
    /// Ignored by the operator: use `spec.telemetryConfigRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<TelemetryConfig>,
    /// Members that the schema does not know; the API server keeps them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

/// A tool that runs a script over the other tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CodeMode {
    /// Whether the tool is offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many tool calls a script may have under way at once.
    #[serde(default = "CodeMode::default_parallel_max_concurrency")]
    #[schemars(schema_with = "crate::schema::integer", range(min = 1))]
    pub parallel_max_concurrency: i64,
    /// How many steps a script may take.
    #[serde(default = "CodeMode::default_step_limit")]
    #[schemars(range(min = 1))]
    pub step_limit: i64,
    /// How long one tool call of a script may take.
    #[serde(default = "CodeMode::default_tool_call_timeout")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub tool_call_timeout: String,
}

impl CodeMode {
    const fn default_parallel_max_concurrency() -> i64 {
        10
    }

    const fn default_step_limit() -> i64 {
        100_000
    }

    fn default_tool_call_timeout() -> String {
        "30s".into()
    }
}

/// Finding tools by what they do: clients see a tool that searches, and one that calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.embeddingHeaders) || (has(self.embeddingProvider) && self.embeddingProvider == 'openai')",
        "message": "embeddingHeaders is only supported when embeddingProvider is 'openai'",
    },
    {
        "rule": "!has(self.embeddingHeaders) || self.embeddingHeaders.all(k, k.matches('^[!#$%&\\\\x27*+.^_\\\\x60|~0-9A-Za-z-]+$') && !(k.lowerAscii() in ['authorization', 'content-type']))",
        "message": "embeddingHeaders names must be valid HTTP header names and must not include Authorization or Content-Type",
    },
]))]
pub struct Optimizer {
    /// Headers for requests to the embedding service, for provider `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "minLength": 1, "maxLength": 8192, "pattern": "^[^\\x00-\\x08\\x0A-\\x1F\\x7F]*$"}))]
    pub embedding_headers: Option<BTreeMap<String, String>>,
    /// The model that the embedding service uses, for provider `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_model: Option<String>,
    /// What the embedding service speaks.
    #[serde(default)]
    pub embedding_provider: EmbeddingProvider,
    /// The address of the embedding service. The one of `spec.embeddingServerRef` where that is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_service: Option<String>,
    /// How long one request to the embedding service may take.
    #[serde(default = "Optimizer::default_embedding_service_timeout")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub embedding_service_timeout: String,
    /// How much meaning counts against words, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]*[.])?[0-9]+$"))]
    pub hybrid_search_semantic_ratio: Option<String>,
    /// How many tools a search finds at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::integer", range(min = 1, max = 50))]
    pub max_tools_to_return: Option<i64>,
    /// How far from the query a tool may be, from 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]*[.])?[0-9]+$"))]
    pub semantic_distance_threshold: Option<String>,
}

impl Optimizer {
    fn default_embedding_service_timeout() -> String {
        "30s".into()
    }
}

string_enum! {
    /// Protocols of embedding services.
    #[derive(Default)]
    pub enum EmbeddingProvider {
        /// Text Embeddings Inference.
        #[default]
        Tei = "tei",
        /// The embeddings API of OpenAI.
        Openai = "openai",
    }
}
