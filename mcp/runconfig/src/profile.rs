//! Permission profiles: what an MCP server may read, write and reach.
//!
//! They have no effect in Kubernetes (the runtime enforces nothing there); the document carries them.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{ParseError, members::Members};

/// What an MCP server may touch. Unknown members are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PermissionProfile {
    /// The profile's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Paths (`host:container`) it may read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Paths (`host:container`) it may write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// What it may reach; absent: not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPermissions>,
    /// Whether it may run privileged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Which network traffic a profile allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetworkPermissions {
    /// The network mode, as the container runtime names it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Traffic out of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbound: Option<OutboundNetwork>,
    /// Traffic into the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound: Option<InboundNetwork>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Traffic out of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OutboundNetwork {
    /// Everything is allowed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_allow_all: bool,
    /// Hosts allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_host: Vec<String>,
    /// Ports allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_port: Vec<u16>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Traffic into the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InboundNetwork {
    /// Hosts allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_host: Vec<String>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl PermissionProfile {
    /// The builtin profile without network.
    pub fn none() -> Self {
        Self { name: "none".to_owned(), network: Some(NetworkPermissions::default().closed()), ..Self::default() }
    }

    /// The builtin profile with unlimited outbound network; what a server gets that names none.
    pub fn network() -> Self {
        let outbound = OutboundNetwork { insecure_allow_all: true, ..OutboundNetwork::default() };
        let network = NetworkPermissions { outbound: Some(outbound), ..NetworkPermissions::default().closed() };
        Self { name: "network".to_owned(), network: Some(network), ..Self::default() }
    }

    /// Reads a profile document, such as a key of a user's ConfigMap.
    ///
    /// # Errors
    /// Names the member that does not fit.
    pub fn parse(document: &[u8]) -> Result<Self, ParseError> {
        let value = serde_json::from_slice(document)
            .map_err(|error| ParseError::new("document", format!("is not JSON: {error}"), "write one JSON object"))?;
        Self::from_value(value, "")
    }

    pub(crate) fn from_value(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        let network = match members.value("network") {
            None => None,
            Some(value) => Some(NetworkPermissions::from_value(value, &members.path("network"))?),
        };
        Ok(Self {
            name: members.string("name")?.unwrap_or_default(),
            read: members.strings("read")?,
            write: members.strings("write")?,
            network,
            privileged: members.boolean("privileged")?,
            extra: members.rest(),
        })
    }
}

impl NetworkPermissions {
    fn closed(self) -> Self {
        Self { outbound: Some(OutboundNetwork::default()), inbound: Some(InboundNetwork::default()), ..self }
    }

    fn from_value(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        let outbound = match members.value("outbound") {
            None => None,
            Some(value) => {
                let mut outbound = Members::of(value, &members.path("outbound"))?;
                let ports = outbound.list("allow_port")?;
                let path = outbound.path("allow_port");
                let port = |(at, port): (usize, Value)| {
                    port.as_u64().and_then(|port| u16::try_from(port).ok()).ok_or_else(|| {
                        ParseError::new(format!("{path}[{at}]"), "is not a port", "use an integer from 0 to 65535")
                    })
                };
                Some(OutboundNetwork {
                    insecure_allow_all: outbound.boolean("insecure_allow_all")?,
                    allow_host: outbound.strings("allow_host")?,
                    allow_port: ports.into_iter().enumerate().map(port).collect::<Result<_, _>>()?,
                    extra: outbound.rest(),
                })
            }
        };
        let inbound = match members.value("inbound") {
            None => None,
            Some(value) => {
                let mut inbound = Members::of(value, &members.path("inbound"))?;
                Some(InboundNetwork { allow_host: inbound.strings("allow_host")?, extra: inbound.rest() })
            }
        };
        Ok(Self { mode: members.string("mode")?.unwrap_or_default(), outbound, inbound, extra: members.rest() })
    }
}
