//! The inputs of `explain`, read without IO.

use bytes::Bytes;
use mcp_runconfig::{ParseError, RunConfig};
use mcp_wire::{Members, check_structure};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The key of a ConfigMap under which the operator writes the document.
const KEY: &str = "runconfig.json";

const ONE_MAP: &str = "name one ConfigMap, as in kubectl get configmap <server>-runconfig -o yaml";
const TOOLS_FIX: &str = "write a JSON-RPC response, its result, or the list of tools";

/// The RunConfig in `text`: the document itself, or a ConfigMap in JSON or YAML.
pub(super) fn run_config(text: &str) -> Result<RunConfig, ParseError> {
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
    let is_json = text.trim_start().starts_with('{');
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

fn check(json: &str) -> Result<(), ParseError> {
    check_structure(json).map_err(|error| ParseError::new("document", error.to_string(), "keep one of them"))
}

pub(super) fn claims(text: &str) -> Result<Map<String, Value>, ParseError> {
    let fix = "write the claims of a token as one JSON object";
    let claims = serde_json::from_str(text)
        .map_err(|error| ParseError::new("document", format!("is no JSON object: {error}"), fix))?;
    check_structure(text).map_err(|error| ParseError::new("document", error.to_string(), fix))?;
    Ok(claims)
}

pub(super) fn arguments(text: String) -> Result<Box<RawValue>, ParseError> {
    let fix = "write the arguments of a call as one JSON object";
    let problem = |problem: String| ParseError::new("document", problem, fix);
    let raw = RawValue::from_string(text.trim().to_owned()).map_err(|error| problem(format!("is no JSON: {error}")))?;
    if raw.get().starts_with('{') { Ok(raw) } else { Err(problem("is no JSON object".to_owned())) }
}

/// The JSON-RPC response that `text` is, or that has it for its result or its list.
pub(super) fn tools(text: &str) -> Result<Bytes, ParseError> {
    let problem = |problem: String| ParseError::new("document", problem, TOOLS_FIX);
    let response = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).into();
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| problem(format!("is no JSON: {error}")))?;
    if raw.get().starts_with('[') {
        return Ok(response(&format!(r#"{{"tools":{raw}}}"#)));
    }
    let Members(members) =
        serde_json::from_str(raw.get()).map_err(|error| problem(format!("is no object: {error}")))?;
    let has = |name: &str| members.iter().any(|(member, _)| member == name);
    match (has("result"), has("tools")) {
        (true, _) => Ok(raw.get().to_owned().into()),
        (false, true) => Ok(response(raw.get())),
        (false, false) if has("error") => {
            let fix = "ask the server again, until it answers with tools";
            Err(ParseError::new("error", "the server has answered with an error", fix))
        }
        _ => Err(ParseError::new("tools", "is missing", TOOLS_FIX)),
    }
}
