//! The inputs of `explain`, read without IO.

use bytes::Bytes;
use mcp_runconfig::ParseError;
use mcp_wire::{Members, check_structure};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

const TOOLS_FIX: &str = "write a JSON-RPC response, its result, or the list of tools";

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
