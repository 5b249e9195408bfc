//! The arguments of a tool that its callers mirror in headers (MCP 2026-07-28, "Custom headers").

use http::header::{HeaderMap, HeaderName};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::headers::{HeaderError, MAX_PARAMS, PARAM_PREFIX, decode, same, scalars_at};

const MARK: &str = "x-mcp-header";
/// Deepest object in which a marked property is looked for.
const DEPTH: usize = 16;

/// Which properties of a tool's input schema are marked with `x-mcp-header`, and as which headers their values travel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolHeaders {
    headers: Vec<HeaderName>,
    /// The paths of the arguments that they mirror.
    paths: Vec<Vec<String>>,
}

impl ToolHeaders {
    /// Reads the marks of an `inputSchema`.
    pub fn of_schema(schema: &Value) -> Self {
        let mut found = Vec::new();
        collect(schema, &mut Vec::new(), &mut found);
        let (headers, paths) = found.into_iter().unzip();
        Self { headers, paths }
    }

    /// Whether nothing is marked.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Refuses a call whose headers say something else than its `arguments`: each marked argument that is there travels in its header,
    /// once, and one that is absent or null in none.
    pub fn check(&self, headers: &HeaderMap, arguments: Option<&RawValue>) -> Result<(), HeaderError> {
        // A client's arguments were read before, strictly.
        let truths = scalars_at(arguments, &self.paths).unwrap_or_else(|_| vec![None; self.paths.len()]);
        for (header, truth) in self.headers.iter().zip(truths) {
            let mut values = headers.get_all(header).iter();
            let (value, more) = (values.next(), values.next());
            let said = value.and_then(decode);
            let fits = match (&truth, value) {
                (None, None) => true,
                (Some(truth), Some(_)) => more.is_none() && said.as_deref().is_some_and(|said| same(said, truth)),
                _ => false,
            };
            if !fits {
                return Err(HeaderError::mismatch(header.clone(), said.as_deref(), truth.as_deref()));
            }
        }
        Ok(())
    }
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<(HeaderName, Vec<String>)>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        if found.len() >= MAX_PARAMS || path.len() >= DEPTH {
            return;
        }
        path.push(name.clone());
        let header = property.get(MARK).and_then(Value::as_str).map(|mark| format!("{PARAM_PREFIX}{mark}"));
        if let Some(header) = header.and_then(|header| HeaderName::from_bytes(header.as_bytes()).ok()) {
            found.push((header, path.clone()));
        }
        collect(property, path, found);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_argument_and_its_header_must_say_the_same() {
        let schema = serde_json::json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
            "plain": {"type": "string"},
        }});
        let marks = ToolHeaders::of_schema(&schema);
        for (arguments, headers, fits) in [
            (r#"{"region":"eu"}"#, &[("mcp-param-region", "eu")][..], true),
            (r#"{"region":"eu"}"#, &[("mcp-param-region", "=?base64?ZXU=?=")], true),
            (r#"{"region":"eu","plain":"x"}"#, &[("mcp-param-region", "eu"), ("mcp-param-other", "y")], true),
            (r#"{"deep":{"count":7}}"#, &[("mcp-param-count", "007")], true),
            (r#"{"region":null}"#, &[], true),
            ("{}", &[], true),
            (r#"{"region":"eu"}"#, &[], false),
            (r#"{"region":"eu"}"#, &[("mcp-param-region", "us")], false),
            (r#"{"region":"eu"}"#, &[("mcp-param-region", "eu"), ("mcp-param-region", "eu")], false),
            (r#"{"region":"Hello"}"#, &[("mcp-param-region", "=?base64?SGVsbG8?=")], false),
            (r#"{"region":null}"#, &[("mcp-param-region", "eu")], false),
            ("{}", &[("mcp-param-count", "1")], false),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(HeaderName::from_static(name), value.parse().unwrap());
            }
            let raw: Box<RawValue> = serde_json::from_str(arguments).unwrap();
            assert_eq!(marks.check(&map, Some(&raw)).is_ok(), fits, "{arguments} {headers:?}");
        }
        assert!(ToolHeaders::of_schema(&serde_json::json!({"properties": {"a": {}}})).is_empty());
    }
}
