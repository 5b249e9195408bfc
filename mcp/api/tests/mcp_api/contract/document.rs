//! Reads the contract, and finds its paths in objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde_json::{Map, Value};

/// The kinds of the API. Each has a contract here.
pub(crate) static KINDS: LazyLock<Vec<String>> =
    LazyLock::new(|| mcp_api::crds().into_iter().map(|crd| crd.spec.names.kind).collect());

/// The kinds that have a contract.
pub(crate) fn contracts() -> BTreeSet<String> {
    let files = std::fs::read_dir(format!("{}/tests/mcp_api/contract", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect()
}

/// The contract of one kind.
pub(crate) struct Contract(pub(crate) Value);

impl Contract {
    pub(crate) fn of(kind: &str) -> Self {
        let path = format!("{}/tests/mcp_api/contract/{kind}.json", env!("CARGO_MANIFEST_DIR"));
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

/// The JSON pointers at which `object` has a path of the contract (`.spec.env[].name`, `.labels{}`).
pub(crate) fn locate(object: &Value, path: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let name = part.trim_end_matches(['[', ']', '{', '}']);
        found = found.into_iter().map(|pointer| format!("{pointer}/{name}")).collect();
        if name != part {
            found = found.iter().flat_map(|pointer| children(object, pointer)).collect();
        }
    }
    found.retain(|pointer| object.pointer(pointer).is_some());
    found
}

fn children(object: &Value, pointer: &str) -> Vec<String> {
    let names: Vec<String> = match object.pointer(pointer) {
        Some(Value::Array(items)) => (0..items.len()).map(|index| index.to_string()).collect(),
        Some(Value::Object(members)) => members.keys().cloned().collect(),
        _ => Vec::new(),
    };
    names.into_iter().map(|name| format!("{pointer}/{name}")).collect()
}

/// A JSON pointer as the API server writes the field.
pub(crate) fn field(pointer: &str) -> String {
    let parts = pointer.split('/').skip(1).map(|part| match part.parse::<usize>() {
        Ok(index) => format!("[{index}]"),
        Err(_) => format!(".{part}"),
    });
    parts.collect::<String>().trim_start_matches('.').to_owned()
}

/// RFC 7386, but that arrays of one object are merged too.
pub(crate) fn merge(object: &mut Value, over: &Value) {
    match (object, over) {
        (Value::Object(members), Value::Object(over)) => {
            for (name, over) in over {
                if over.is_null() {
                    members.remove(name);
                } else {
                    merge(members.entry(name).or_insert(Value::Null), over);
                }
            }
        }
        (Value::Array(items), Value::Array(over)) if items.len() == 1 && over.len() == 1 => {
            merge(&mut items[0], &over[0]);
        }
        (object, over) => *object = over.clone(),
    }
}

/// Whether a complaint is about `field`, or about something that it lies in.
pub(crate) fn is_about(complaint: &str, field: &str) -> bool {
    complaint.starts_with(field) || field.starts_with(complaint.split(": ").next().unwrap_or_default())
}
