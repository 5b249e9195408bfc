//! MCPWebhookConfig: the webhooks that see the MCP requests of the servers referring to it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::IntoDeserializer};

use crate::{
    reference::{SecretKeyRef, WorkloadRef},
    v1beta1::ConfigStatus,
};

/// Which webhooks are asked about an MCP request, and in which order. At least one has to be given.
///
/// The mutating ones run first, one after the other; the validating ones then see the request as they left it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1alpha1",
    kind = "MCPWebhookConfig",
    namespaced,
    status = "MCPWebhookConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "mwc",
    category = "toolhive",
    doc = "MCPWebhookConfig names HTTP webhooks that check or change the MCP requests of every server referring to it.",
    printcolumn(name = "Valid", type_ = "string", json_path = ".status.conditions[?(@.type=='Valid')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.validating) ? size(self.validating) : 0) + (has(self.mutating) ? size(self.mutating) : 0) > 0",
    "message": "at least one validating or mutating webhook must be defined",
}]))]
pub struct MCPWebhookConfigSpec {
    /// Webhooks that may change a request, in this order, before any validating webhook is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutating: Option<Vec<Webhook>>,
    /// Webhooks that accept or deny a request, in this order. Each sees what the mutating webhooks made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validating: Option<Vec<Webhook>>,
}

absent_spec_is_default!(MCPWebhookConfigSpec);

/// One HTTP webhook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// What happens to a request when this webhook cannot be reached or its answer cannot be used.
    #[serde(default, deserialize_with = "in_any_case")]
    pub failure_policy: FailurePolicy,
    /// The key that signs each call with HMAC-SHA256, so that the webhook can tell who asks. Unsigned when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hmac_secret_ref: Option<SecretKeyRef>,
    /// Which messages this webhook is asked about. All when absent.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matches: Option<WebhookMatch>,
    /// Whether this webhook decides (`enforce`), or is only tried: asked about live requests, counted, and without effect (`shadow`).
    #[serde(default, skip_serializing_if = "WebhookMode::is_enforce")]
    pub mode: WebhookMode,
    /// What this webhook is called in logs, audit records and denials.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// How long one call may take, as a duration between 1s and 30s such as `5s`. 10s when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "duration"))]
    pub timeout: Option<String>,
    /// Which certificates are trusted and shown when the webhook is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<WebhookTlsConfig>,
    /// Where the webhook listens. Has to be https, unless `tlsConfig.insecureSkipVerify` is set.
    #[schemars(extend("format" = "uri"))]
    pub url: String,
}

/// Which messages a webhook is asked about: those that are in every list that is there. `*` in a list stands for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookMatch {
    /// Methods, such as `tools/call` or `resources/*`. Every method when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub methods: Option<Vec<String>>,
    /// Subjects of callers, as their login names them. Every caller when absent; one without a login is in every list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub principals: Option<Vec<String>>,
    /// Tools, by the names that the MCP server gives them. With a list, the webhook is asked about calls of tools alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub tools: Option<Vec<String>>,
}

/// How a webhook's TLS connection is checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookTlsConfig {
    /// The PEM bundle of the authorities that the webhook's certificate may come from. The system's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// The PEM certificate shown to the webhook. Needs `clientKeySecretRef` beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert_secret_ref: Option<SecretKeyRef>,
    /// The PEM private key of the certificate in `clientCertSecretRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_secret_ref: Option<SecretKeyRef>,
    /// Accepts any certificate of the webhook, and plain http. For tests only: anyone on the path can answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

string_enum! {
    /// What a failing webhook means for the request.
    #[derive(Default)]
    pub enum FailurePolicy {
        /// The request is denied.
        #[default]
        Fail = "fail",
        /// The request goes on as if the webhook had not been asked.
        Ignore = "ignore",
    }
}

string_enum! {
    /// Whether a webhook decides.
    #[derive(Default)]
    pub enum WebhookMode {
        /// It decides.
        #[default]
        Enforce = "enforce",
        /// It is asked, and what it says is counted alone.
        Shadow = "shadow",
    }
}

impl WebhookMode {
    /// Whether it decides. A spec does not say so, as those do not that came before there were modes.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
    fn is_enforce(&self) -> bool {
        *self == Self::Enforce
    }
}

/// Reads a policy in upper or lower case: objects that were stored under a looser schema have `Fail` and `Ignore`.
fn in_any_case<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FailurePolicy, D::Error> {
    FailurePolicy::deserialize(String::deserialize(deserializer)?.to_ascii_lowercase().into_deserializer())
}

/// What the operator has found out about the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPWebhookConfigStatus {
    /// Whether the spec can be used (`Valid`), and whether a deletion waits for referring servers (`DeletionBlocked`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// A digest of the last valid spec; it changes when the spec does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The names of the MCPServers that refer to this configuration, sorted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub referencing_servers: Option<Vec<String>>,
    /// The workloads that refer to this configuration, sorted by kind and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub referencing_workloads: Option<Vec<WorkloadRef>>,
}

impl From<MCPWebhookConfigStatus> for ConfigStatus {
    fn from(status: MCPWebhookConfigStatus) -> Self {
        let MCPWebhookConfigStatus {
            conditions,
            config_hash,
            observed_generation,
            referencing_workloads,
            referencing_servers: _,
        } = status;
        Self { conditions, config_hash, observed_generation, referencing_workloads }
    }
}

impl From<ConfigStatus> for MCPWebhookConfigStatus {
    fn from(status: ConfigStatus) -> Self {
        let ConfigStatus { conditions, config_hash, observed_generation, referencing_workloads } = status;
        let workloads = referencing_workloads.iter().flatten().filter(|workload| workload.kind == "MCPServer");
        let servers: Vec<_> = workloads.map(|server| server.name.clone()).collect();
        let referencing_servers = (!servers.is_empty()).then_some(servers);
        Self { conditions, config_hash, observed_generation, referencing_servers, referencing_workloads }
    }
}
