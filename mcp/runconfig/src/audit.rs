//! The audit of requests (toolhive-runner §2.6).

use serde::Serialize;
use serde_json::{Value, json};

use crate::{MiddlewareConfig, Parameters, ParseError, members::Members};

/// Middleware `type` of what writes a line for each request.
pub const AUDIT: &str = "audit";

/// How requests are audited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditConfig {
    /// Whether they are. ToolHive writes nothing where they are, so that absent means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The component that events come from; empty means ToolHive's own name for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// The types of events that are written; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// The types of events that are not written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_event_types: Vec<String>,
    /// Whether events have the client's message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_request_data: bool,
    /// Whether events have the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_response_data: bool,
    /// Whether answers are searched for errors of JSON-RPC.
    pub detect_application_errors: bool,
    /// Bytes of a message or an answer above which events do not have it.
    pub max_data_size: u32,
    /// The actors of a token (claim `act`) that events list.
    #[serde(skip_serializing_if = "is_default_depth")]
    pub max_delegation_depth: u32,
    /// The file that events are appended to; empty means standard output.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub log_file: String,
}

/// Parameters of `audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditParameters {
    /// A file with the rest, which this version does not read.
    pub config_path: String,
    /// How requests are audited; `None` means the defaults.
    pub config_data: Option<AuditConfig>,
    /// The component that events come from; goes before that of the rest.
    pub component: String,
    /// The transport of the MCP server.
    pub transport_type: String,
}

const DEPTH: u32 = 10;

impl AuditConfig {
    /// Whether requests are audited.
    pub fn is_on(&self) -> bool {
        self.enabled != Some(false)
    }

    /// The entry of the chain for a server of this transport.
    pub fn middleware(&self, transport: &str) -> MiddlewareConfig {
        MiddlewareConfig::new(AUDIT, json!({"config_data": self, "transport_type": transport}))
    }

    pub(crate) fn from_value(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        let default = Self::default();
        let enabled = members.value("enabled");
        let detects = members.value("detectApplicationErrors");
        let flag = |name: &str, value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(crate::members::wrong_type(&format!("{path}.{name}"), &other, "true or false")),
        };
        Ok(Self {
            enabled: flag("enabled", enabled)?,
            component: members.string("component")?.unwrap_or_default(),
            event_types: members.strings("eventTypes")?,
            exclude_event_types: members.strings("excludeEventTypes")?,
            include_request_data: members.boolean("includeRequestData")?,
            include_response_data: members.boolean("includeResponseData")?,
            detect_application_errors: flag("detectApplicationErrors", detects)?
                .unwrap_or(default.detect_application_errors),
            max_data_size: match members.integer("maxDataSize", 0, 16 << 20)? {
                None | Some(0) => default.max_data_size,
                Some(bytes) => bytes,
            },
            max_delegation_depth: members.integer("maxDelegationDepth", 1, 100)?.unwrap_or(DEPTH),
            log_file: members.string("logFile")?.unwrap_or_default(),
        })
    }
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
            max_delegation_depth: DEPTH,
            log_file: String::new(),
        }
    }
}

impl Parameters for AuditParameters {
    fn read(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        let (config, config_path) = (members.value("config_data"), members.path("config_data"));
        Ok(Self {
            config_path: members.string("config_path")?.unwrap_or_default(),
            config_data: config.map(|config| AuditConfig::from_value(config, &config_path)).transpose()?,
            component: members.string("component")?.unwrap_or_default(),
            transport_type: members.string("transport_type")?.unwrap_or_default(),
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn is_default_depth(depth: &u32) -> bool {
    *depth == DEPTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_as_toolhive_has_it() {
        let read = |value| AuditConfig::from_value(value, "audit_config");
        let default = AuditConfig::default();
        for (value, expected) in [
            (json!({}), default.clone()),
            (json!({"maxDataSize": 0, "Enabled": true}), AuditConfig { enabled: Some(true), ..default.clone() }),
            (
                json!({"detectApplicationErrors": false}),
                AuditConfig { detect_application_errors: false, ..default.clone() },
            ),
        ] {
            assert_eq!(read(value.clone()), Ok(expected), "{value}");
        }
        for (value, field) in [
            (json!({"enabled": "yes"}), "audit_config.enabled"),
            (json!({"maxDataSize": -1}), "audit_config.maxDataSize"),
            (json!({"maxDelegationDepth": 0}), "audit_config.maxDelegationDepth"),
            (json!([]), "audit_config"),
        ] {
            assert_eq!(read(value).unwrap_err().field, field);
        }
        assert!(default.is_on() && !AuditConfig { enabled: Some(false), ..default }.is_on());
    }

    #[test]
    fn the_entry_has_the_members_that_upstreams_operator_writes() {
        let entry = serde_json::to_string(&AuditConfig::default().middleware("stdio")).unwrap();
        assert_eq!(
            entry,
            r#"{"type":"audit","parameters":{"config_data":{"detectApplicationErrors":true,"maxDataSize":1024},"transport_type":"stdio"}}"#
        );
    }
}
