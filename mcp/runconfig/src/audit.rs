//! Which requests are written down, and what of them (toolhive-runner §2.6).

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::{MiddlewareConfig, RunConfig};

/// `type` of the middleware that writes a line about each request.
pub const AUDIT: &str = "audit";

/// Which requests are written down, and what of them. Members are declared in the order ToolHive writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditConfig {
    /// Whether anything is written: `None`, which operators write, is yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The name of this proxy in the lines; empty means the middleware's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// The types of events that are written; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// The types of events that are not written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_event_types: Vec<String>,
    /// Whether lines have the body of the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_request_data: bool,
    /// Whether lines have the body of the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_response_data: bool,
    /// Whether an error inside of a successful answer is told from a success.
    #[serde(default = "yes")]
    pub detect_application_errors: bool,
    /// The longest body that a line has, in bytes.
    #[serde(default = "max_data_size")]
    pub max_data_size: u64,
    /// The most actors of a delegated token that a line names.
    #[serde(default = "max_delegation_depth", skip_serializing_if = "is_max_delegation_depth")]
    pub max_delegation_depth: u64,
    /// The file that lines are appended to; empty means the standard output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_file: String,
}

/// Parameters of `audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditParameters {
    /// A file that ToolHive's runner reads the configuration from. It is always `None`: documents that name one are refused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "no_path")]
    pub config_path: Option<String>,
    /// What is written; `None` stands for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_data: Option<AuditConfig>,
    /// The name of this proxy in the lines where the configuration has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// How the MCP server is spoken to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub transport_type: String,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            enabled: None,
            component: String::new(),
            event_types: Vec::new(),
            exclude_event_types: Vec::new(),
            include_request_data: false,
            include_response_data: false,
            detect_application_errors: true,
            max_data_size: max_data_size(),
            max_delegation_depth: max_delegation_depth(),
            log_file: String::new(),
        }
    }
}

impl AuditConfig {
    /// Whether anything is written.
    pub fn is_on(&self) -> bool {
        self.enabled != Some(false)
    }
}

impl AuditParameters {
    /// The parameters for a document with an `audit_config`; none where that is turned off.
    pub fn of(config: &RunConfig) -> Option<Self> {
        let audit = config.audit_config.as_ref().filter(|audit| audit.is_on())?;
        Some(Self { config_data: Some(audit.clone()), transport_type: config.transport.to_string(), ..Self::default() })
    }

    /// The entry of the chain.
    pub fn middleware(&self) -> MiddlewareConfig {
        // Strings, integers and lists of strings always serialize; no object would be refused by the proxy.
        MiddlewareConfig::new(AUDIT, serde_json::to_value(self).unwrap_or(Value::Bool(false)))
    }
}

fn no_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.filter(|path| !path.is_empty()) {
        None => Ok(None),
        Some(path) => Err(D::Error::custom(format!("{path:?} is not read; write its configuration as config_data"))),
    }
}

const fn yes() -> bool {
    true
}

const fn max_data_size() -> u64 {
    1024
}

const fn max_delegation_depth() -> u64 {
    10
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn is_max_delegation_depth(depth: &u64) -> bool {
    *depth == max_delegation_depth()
}
