//! Reads the contract.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The kinds that have a contract here.
pub(crate) const KINDS: [&str; 4] = ["MCPOIDCConfig", "MCPServer", "MCPToolConfig", "MCPWebhookConfig"];

/// The contract of one kind.
pub(crate) struct Contract(pub(crate) Value);

impl Contract {
    pub(crate) fn of(kind: &str) -> Self {
        let path = format!("{}/tests/contract/{kind}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        Self(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}")))
    }

    /// What each path of one version says, which may be what another version says.
    pub(crate) fn fields(&self, version: &str) -> BTreeMap<String, Map<String, Value>> {
        let fields = match &self.0["versions"][version]["fields"] {
            Value::String(same) => &self.0["versions"][same.strip_prefix("same as ").unwrap()]["fields"],
            fields => fields,
        };
        let fields = fields.as_object().unwrap();
        fields.iter().map(|(path, says)| (path.clone(), says.as_object().unwrap().clone())).collect()
    }

    /// The version that is stored.
    pub(crate) fn stored(&self) -> &str {
        let versions = self.0["versions"].as_object().unwrap();
        versions.iter().find(|(_, version)| version["storage"] == true).unwrap().0
    }

    /// What each path of the stored version says.
    pub(crate) fn stored_fields(&self) -> BTreeMap<String, Map<String, Value>> {
        self.fields(self.stored())
    }

    pub(crate) fn plural(&self) -> &str {
        self.0["names"]["plural"].as_str().unwrap()
    }
}
