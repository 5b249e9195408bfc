//! Two request webhooks behind TLS that check signatures, and what a runner posts to them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use aws_lc_rs::hmac;
use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http_body_util::Full;
use jiff::Timestamp;
use mcp_runconfig::webhook::{SIGNATURE_HEADER, TIMESTAMP_HEADER};
use portcullis_e2e::certificates;
use portcullis_e2e::request_webhook::RequestWebhook;
use portcullis_pki::Pair;
use serde_json::{Value, json};

/// The CA's file in the folder of a run.
pub const CA: &str = "ca.crt";
/// The files of the certificate for `localhost` and of its key there.
pub(super) const CERTIFICATE: &str = "webhook.crt";
pub(super) const KEY: &str = "webhook.key";
const SECRET_FILE: &str = "hmac";
const SECRET: &[u8] = b"bench-secret";
/// As long as a runner's.
const AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));

/// Writes certificates and the secret that signs requests to `folder`.
pub fn prepare(folder: &Path) -> Result<()> {
    let (ca, pair) = certificates::localhost()?;
    std::fs::write(folder.join(CA), ca.cert_pem())?;
    std::fs::write(folder.join(CERTIFICATE), &pair.cert_pem)?;
    std::fs::write(folder.join(KEY), &pair.key_pem)?;
    Ok(std::fs::write(folder.join(SECRET_FILE), SECRET)?)
}

/// Serves both webhooks at `address` for ever.
pub async fn serve(address: SocketAddr, folder: &Path) -> Result<()> {
    let read = |name| std::fs::read_to_string(folder.join(name));
    let pair = Pair { cert_pem: read(CERTIFICATE)?, key_pem: read(KEY)? };
    let _webhook = RequestWebhook::start_at(address, &pair, SECRET).await?;
    std::future::pending().await
}

/// The entries of a runner's chain that call them.
pub fn chain(address: SocketAddr, folder: &Path) -> [Value; 2] {
    [("mutating-webhook", "mutate"), ("validating-webhook", "validate")].map(|(kind, path)| {
        let webhook = json!({
            "name": path, "url": format!("https://localhost:{}/{path}", address.port()), "timeout": 5_000_000_000_i64,
            "failure_policy": "fail", "hmac_secret_ref": folder.join(SECRET_FILE),
            "tls_config": { "ca_bundle_path": folder.join(CA) },
        });
        let parameters = json!({ "webhooks": [webhook], "server_name": "bench", "transport": "streamable-http" });
        json!({ "type": kind, "parameters": parameters })
    })
}

/// The entry of a runner's chain with so many webhooks that are asked about no call of the load. Nobody listens there.
pub fn idle(count: usize) -> Value {
    let webhook = |at| {
        json!({
            "name": format!("idle-{at}"), "url": "https://127.0.0.1:9/", "failure_policy": "fail",
            "tls_config": { "insecure_skip_verify": true },
            "portcullis": { "match": { "tools": ["deploy_*", format!("delete-{at}")] } },
        })
    };
    let webhooks: Vec<_> = (0..count).map(webhook).collect();
    json!({ "type": "validating-webhook", "parameters": { "webhooks": webhooks, "server_name": "bench" } })
}

/// A request as a runner sends it for an MCP message, signed.
#[derive(Debug)]
pub(super) struct Signed {
    port: u16,
    path: &'static str,
    seconds: i64,
    signature: String,
    body: Bytes,
}

impl Signed {
    /// The request to the webhook at `path` for this MCP message.
    pub(super) fn new(address: SocketAddr, path: &'static str, message: &str) -> Self {
        let now = Timestamp::now();
        let seconds = now.as_second();
        // A runner sends this about a caller who does not have to log in.
        let (name, email, until) = ("Local User: local", "local@localhost", seconds + 24 * 60 * 60);
        let claims = format!(
            r#"{{"aud":"toolhive","email":"{email}","exp":{until},"iat":{seconds},"iss":"toolhive-local","name":"{name}","nbf":{seconds},"sub":"local"}}"#
        );
        let body = format!(
            r#"{{"version":"v0.1.0","uid":"6dbe3b4c-6f3c-4f0e-8f0a-0a4c6f0f7c11","timestamp":"{now}","principal":{{"sub":"local","name":"{name}","email":"{email}","claims":{claims}}},"mcp_request":{message},"context":{{"server_name":"bench","source_ip":"127.0.0.1:40000","transport":"streamable-http"}}}}"#
        );
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
        let mut signature = "sha256=".to_owned();
        for byte in hmac::sign(&key, format!("{seconds}.{body}").as_bytes()).as_ref() {
            // Writing to a String cannot fail.
            let _ = write!(signature, "{byte:02x}");
        }
        Self { port: address.port(), path, seconds, signature, body: body.into() }
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Self { port, path, seconds, signature, body } = self;
        let head = format!(
            "POST /{path} HTTP/1.1\r\nhost: localhost:{port}\r\ncontent-type: application/json\r\nuser-agent: {AGENT}\r\n{TIMESTAMP_HEADER}: {seconds}\r\n{SIGNATURE_HEADER}: {signature}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    /// It, for a client that makes the bytes itself.
    pub(super) fn request(&self) -> Result<Request<Full<Bytes>>> {
        let request = Request::post(format!("https://localhost:{}/{}", self.port, self.path))
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT)
            .header(TIMESTAMP_HEADER, self.seconds)
            .header(SIGNATURE_HEADER, &self.signature);
        Ok(request.body(Full::new(self.body.clone()))?)
    }
}
