//! `kubectl apply`, with everything that the API server says kept: warnings, and the causes of a refusal.

use anyhow::{Context as _, Result};
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// The API server's answer to an object that it admitted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Texts of its warnings.
    pub warnings: Vec<String>,
}

/// The API server's answer to an object that it refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// Its message.
    pub message: String,
    /// Fields, each with what is wrong.
    pub causes: Vec<(String, String)>,
}

/// The documents of a YAML text.
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(yaml).context("not YAML")
}

/// Applies one object on the server side. The outer error is for calls that failed; a refusal is an answer.
pub async fn apply(client: &Client, object: &Value) -> Result<Result<Applied, Refusal>> {
    let request = Request::patch(path(object)?)
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(Body::from(serde_json::to_vec(object)?))?;
    let response = client.send(request).await?;
    let (head, body) = response.into_parts();
    let warnings =
        head.headers.get_all(http::header::WARNING).iter().filter_map(|value| warning(value.to_str().ok()?)).collect();
    let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
    if head.status.is_success() {
        return Ok(Ok(Applied { warnings }));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = body["details"]["causes"].as_array().into_iter().flatten();
    let causes = causes.map(|cause| (text(&cause["field"]), text(&cause["message"]))).collect();
    Ok(Err(Refusal { code: head.status.as_u16(), message: text(&body["message"]), causes }))
}

fn path(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let version = text("/apiVersion").context("the object has no apiVersion")?;
    let kind = text("/kind").context("the object has no kind")?;
    let name = text("/metadata/name").context("the object has no metadata.name")?;
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let namespace = text("/metadata/namespace").map_or(String::new(), |namespace| format!("/namespaces/{namespace}"));
    // True for every kind that is applied here.
    let singular = kind.to_lowercase();
    let plural = singular.strip_suffix('y').map_or_else(|| format!("{singular}s"), |stem| format!("{stem}ies"));
    Ok(format!("{root}{namespace}/{plural}/{name}?fieldManager=portcullis-demo&force=true"))
}

/// The text of a `Warning: 299 - "…"` header (RFC 7234, section 5.5).
fn warning(header: &str) -> Option<String> {
    let (_, quoted) = header.split_once('"')?;
    Some(quoted.strip_suffix('"')?.replace("\\\"", "\""))
}
