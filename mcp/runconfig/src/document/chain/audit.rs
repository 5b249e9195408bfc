//! Which requests are written down, and what of them (toolhive-runner §2.6).

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// `type` of the middleware that writes a line about each request.
pub const AUDIT: &str = "audit";

/// The most actors of a delegated token that a line names where nothing else is said.
const DEFAULT_DELEGATION_DEPTH: u64 = 10;

/// Which requests are written down, and what of them. Members are declared in the order ToolHive writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuditConfig {
    /// Whether anything is written: `None`, which operators write, is yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The name of this proxy in the lines; empty means the middleware's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// The types of events that are written; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// The types of events that are not written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_event_types: Vec<String>,
    /// Whether lines have the body of the request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_request_data: bool,
    /// Whether lines have the body of the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_response_data: bool,
    /// Whether an error inside of a successful answer is told from a success.
    pub detect_application_errors: bool,
    /// The longest body that a line has, in bytes.
    pub max_data_size: u64,
    /// The most actors of a delegated token that a line names.
    #[serde(skip_serializing_if = "is_default_depth")]
    pub max_delegation_depth: u64,
    /// The file that lines are appended to; empty means the standard output.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub log_file: String,
}

/// Parameters of `audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditParameters {
    /// A file that ToolHive's runner reads the configuration from. Only a document that is about to be refused has it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "no_path")]
    pub config_path: Option<String>,
    /// The configuration; `None` stands for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_data: Option<AuditConfig>,
    /// The name of this proxy in the lines; the configuration's counts where there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// The transport of the MCP server.
    #[serde(skip_serializing_if = "String::is_empty")]
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
            max_data_size: 1024,
            max_delegation_depth: DEFAULT_DELEGATION_DEPTH,
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
    /// The parameters for a document with these members; none where they do not ask for an audit.
    pub fn of(config: Option<&AuditConfig>, path: &str, transport: &str) -> Option<Self> {
        let config_path = Some(path.to_owned()).filter(|path| !path.is_empty());
        let config_data = config.filter(|config| config.is_on()).cloned();
        let asked = config_path.is_some() || config_data.is_some();
        asked.then(|| Self { config_path, config_data, component: String::new(), transport_type: transport.to_owned() })
    }
}

fn no_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.filter(|path| !path.is_empty()) {
        None => Ok(None),
        Some(path) => Err(D::Error::custom(format!("{path:?} is not read; write what is in it into the document"))),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn is_default_depth(depth: &u64) -> bool {
    *depth == DEFAULT_DELEGATION_DEPTH
}
