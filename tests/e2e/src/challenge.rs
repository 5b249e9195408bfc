//! Calls a proxy that asks for a login: its answer, and the address in its challenge.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

/// The deadline of one call.
const CALL: Duration = Duration::from_mins(1);
/// No answer that is read here is longer.
const ANSWER_BYTES: usize = 1 << 20;

/// An answer to a call.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `WWW-Authenticate` (RFC 9110, section 11.6.1).
    pub challenge: Option<String>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The value of a parameter of the challenge.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.challenge.as_deref()?.split_once(&format!("{name}=\""))?;
        rest.split('"').next()
    }
}

/// POSTs an `initialize` to the MCP endpoint `url`, with `token` where there is one.
pub async fn initialize(url: &str, token: Option<&str>) -> Result<Answer> {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "e2e", "version": "1" } },
    });
    let mut request = Request::post(url)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json, text/event-stream");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    send(request.body(Full::from(body.to_string()))?).await
}

/// The protected-resource metadata (RFC 9728) that `challenged` leads to, read from the proxy at `url` itself: nothing serves its public address here.
pub async fn metadata(url: &str, challenged: &Answer) -> Result<Value> {
    let public: http::Uri = challenged.parameter("resource_metadata").context("no resource_metadata")?.parse()?;
    let here: http::Uri = url.parse()?;
    let address = here.authority().context("no address")?;
    let answer = send(Request::get(format!("http://{address}{}", public.path())).body(Full::default())?).await?;
    serde_json::from_str(&answer.body).with_context(|| format!("{answer:?}"))
}

async fn send(request: Request<Full<Bytes>>) -> Result<Answer> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let call = async {
        let (head, body) = client.request(request).await?.into_parts();
        let challenge = head.headers.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), challenge, body: String::from_utf8_lossy(&body).into_owned() })
    };
    tokio::time::timeout(CALL, call).await.context("no answer in time")?
}
