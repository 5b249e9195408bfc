//! Permission profiles: what an MCP server may read, write and reach.
//!
//! They have no effect in Kubernetes (the runtime enforces nothing there); the document carries them.

use serde::{Deserialize, Serialize};

/// The things that an MCP server may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
}

/// Which network traffic a profile allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
}

/// Traffic out of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
}

/// Traffic into the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InboundNetwork {
    /// Hosts allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_host: Vec<String>,
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
}

impl NetworkPermissions {
    fn closed(self) -> Self {
        Self { outbound: Some(OutboundNetwork::default()), inbound: Some(InboundNetwork::default()), ..self }
    }
}
