//! The RunConfig in a text: the document itself, or a ConfigMap that holds it.

use mcp_runconfig::{ParseError, RunConfig};
use mcp_wire::check_structure;
use serde_json::Value;

/// The key of a ConfigMap under which the operator writes the document.
const KEY: &str = "runconfig.json";

const ONE_MAP: &str = "name one ConfigMap, as in kubectl get configmap <server>-runconfig -o yaml";

/// The RunConfig in `text`: the document itself, or a ConfigMap in JSON or YAML.
pub(crate) fn run_config(text: &str) -> Result<RunConfig, ParseError> {
    // Some editors write a mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let value = || -> Result<Value, ParseError> {
        let fix = "write a RunConfig, or what kubectl get configmap prints with -o json or -o yaml";
        // The lines around an error are left out: an error is one line.
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| match error {
            serde_saphyr::Error::MultipleDocuments { .. } => {
                ParseError::new("document", "holds several documents", ONE_MAP)
            }
            error => ParseError::new("document", format!("is neither JSON nor YAML: {error}"), fix),
        })
    };
    let is_json = text.trim_start().starts_with(['{', '[']);
    let value = if is_json { serde_json::from_str(text).ok() } else { Some(value()?) };
    match value.as_ref().and_then(|value| value.get("kind")).and_then(Value::as_str) {
        Some("ConfigMap") => {
            if is_json {
                check(text)?;
            }
            let data = value.as_ref().and_then(|map| map.get("data")?.get(KEY)?.as_str());
            let fix = "name the ConfigMap <server>-runconfig that the operator writes beside the proxy";
            let text = data.ok_or_else(|| ParseError::new(format!("data.{KEY}"), "is missing or no text", fix))?;
            document(text)
                .map_err(|error| ParseError::new(format!("data.{KEY}: {}", error.field), error.problem, error.fix))
        }
        Some(kind) => Err(ParseError::new("kind", format!("is {kind:?}"), ONE_MAP)),
        None if is_json => document(text),
        None => Err(ParseError::new("kind", "is missing", "write a RunConfig in JSON, or a ConfigMap that holds it")),
    }
}

fn document(text: &str) -> Result<RunConfig, ParseError> {
    let config = RunConfig::parse(text.as_bytes())?;
    check(text)?;
    Ok(config)
}

/// Refuses an object with two members of one name: readers differ in which one counts.
fn check(json: &str) -> Result<(), ParseError> {
    check_structure(json).map_err(|error| {
        let text = error.to_string();
        let (problem, fix) = text.split_once("; ").unwrap_or((&text, "write one JSON object"));
        ParseError::new("document", problem, fix)
    })
}
