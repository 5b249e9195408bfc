//! One webhook and one call of it: signature, deadline, limits, and how its answer counts (toolhive-runner §3.4–§3.9).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{HeaderName, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use mcp_middleware::{BuildContext, BuildError};
use mcp_runconfig::webhook::{FailurePolicy, MAX_RESPONSE_BYTES, Response, WebhookConfig};
use serde_json::value::RawValue;

use super::client::Client;
use super::files::{HmacFile, rooted};

const SIGNATURE: HeaderName = HeaderName::from_static("x-toolhive-signature");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-toolhive-timestamp");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));

/// One webhook, ready to be called.
pub(crate) struct Webhook {
    pub(crate) name: String,
    pub(crate) policy: FailurePolicy,
    url: Uri,
    timeout: Duration,
    secret: Option<HmacFile>,
    client: Client,
}

/// A call that brought no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Network(String),
    /// An answer that is too long is judged before its status, so it has none.
    #[error("invalid response: {problem}")]
    Invalid { status: Option<StatusCode>, problem: String },
}

impl CallError {
    /// HTTP 422 denies whatever the failure policy.
    pub(crate) fn is_unprocessable(&self) -> bool {
        matches!(self, Self::Invalid { status: Some(StatusCode::UNPROCESSABLE_ENTITY), .. })
    }

    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::Network(_) => "network",
            Self::Invalid { .. } => "invalid response",
        }
    }
}

impl Webhook {
    /// Checks `config`, the webhook at position `at` of its middleware, and reads every file it names.
    pub(crate) fn new(config: WebhookConfig, at: usize, context: &BuildContext<'_>) -> Result<Self, BuildError> {
        let member = |field: &str| format!("parameters.webhooks[{at}].{field}");
        if let Some(problem) = config.problems().first() {
            let (problem_text, fix) = problem.message.split_once("; ").unwrap_or((&problem.message, "mend it"));
            return Err(context.error(&member(problem.field), problem_text, fix));
        }
        let WebhookConfig { name, url, timeout, failure_policy: policy, tls_config, hmac_secret_ref, .. } = config;
        let uri: Uri =
            url.parse().map_err(|error| context.error(&member("url"), format!("{error}"), "write an absolute URL"))?;
        let secret = if hmac_secret_ref.is_empty() {
            None
        } else {
            let fix = "mount the Secret there, with the key's bytes in the file";
            let fail = |problem: String| context.error(&member("hmac_secret_ref"), problem, fix);
            let path = rooted(&hmac_secret_ref, context.settings.files_root.as_deref()).ok_or_else(|| {
                context.error(
                    &member("hmac_secret_ref"),
                    format!("{hmac_secret_ref:?} names a secret of a secrets provider, and there is none here"),
                    "write the absolute path of a file",
                )
            })?;
            let file = HmacFile::new(path);
            file.key().map_err(fail)?;
            Some(file)
        };
        let tls = tls_config.unwrap_or_default();
        let client = Client::new(&name, &tls, context.settings)
            .map_err(|(field, problem, fix)| context.error(&member(&format!("tls_config.{field}")), problem, fix))?;
        Ok(Self { name, policy, url: uri, timeout: timeout.duration(), secret, client })
    }

    /// Logs whom it asks, and loudly that it would believe anybody.
    pub(crate) fn announce(&self) {
        let (webhook, policy, signed) = (&self.name, self.policy.as_str(), self.secret.is_some());
        // The host alone: paths and queries of webhooks may hold tokens.
        let host = self.url.host().unwrap_or_default();
        if self.client.is_insecure() {
            tracing::warn!(
                webhook,
                host,
                "insecure_skip_verify is set: the webhook's certificate is NOT checked, anybody on the path can answer"
            );
        }
        tracing::info!(webhook, host, policy, signed, "webhook configured");
    }

    /// Posts `payload` and reads the answer, all within the webhook's timeout.
    pub(crate) async fn call(&self, payload: Bytes) -> Result<Response, CallError> {
        let started = Instant::now();
        let outcome = match tokio::time::timeout(self.timeout, self.exchange(payload)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::Timeout(self.timeout)),
        };
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let result =
            outcome.as_ref().map_or_else(CallError::class, |answer| if answer.allowed { "allowed" } else { "denied" });
        tracing::debug!(webhook = self.name, result, micros, "webhook called");
        outcome
    }

    async fn exchange(&self, payload: Bytes) -> Result<Response, CallError> {
        let request = self.request(payload)?;
        let response = self.client.request(request).await.map_err(|error| self.network(&error))?;
        let status = response.status();
        let body = match Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let problem = format!("the answer is longer than {MAX_RESPONSE_BYTES} bytes");
                return Err(CallError::Invalid { status: None, problem });
            }
            Err(error) => return Err(self.network(&*error)),
        };
        if status.is_server_error() {
            return Err(CallError::Network(format!("HTTP {}", status.as_u16())));
        }
        if status != StatusCode::OK {
            self.log_bad(&body);
            let problem = format!("HTTP {}; only 200 is an answer, and redirects are not followed", status.as_u16());
            return Err(CallError::Invalid { status: Some(status), problem });
        }
        // `null` is the empty answer, which denies.
        let answer: Option<Response> = serde_json::from_slice(&body).map_err(|error| {
            self.log_bad(&body);
            CallError::Invalid { status: Some(status), problem: error.to_string() }
        })?;
        let answer = answer.unwrap_or_default();
        if !answer.allowed {
            self.log_denial(says_allowed(&body), &answer.reason, &answer.message);
        }
        Ok(answer)
    }

    fn request(&self, payload: Bytes) -> Result<Request<Full<Bytes>>, CallError> {
        let mut signature = None;
        if let Some(secret) = &self.secret {
            let key = secret.key().map_err(|error| CallError::Network(format!("HMAC key: {error}")))?;
            let timestamp = jiff::Timestamp::now().as_second().to_string();
            let value = HeaderValue::try_from(key.sign(&timestamp, &payload)).ok();
            signature = value.zip(HeaderValue::try_from(timestamp).ok());
        }
        let mut request = Request::new(Full::new(payload));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, AGENT);
        if let Some((signature, timestamp)) = signature {
            headers.insert(SIGNATURE, signature);
            headers.insert(TIMESTAMP, timestamp);
        }
        Ok(request)
    }

    /// The class of an error on the way: one that says it timed out is a time-out.
    fn network(&self, error: &(dyn std::error::Error + 'static)) -> CallError {
        let mut texts = Vec::new();
        let mut at = Some(error);
        while let Some(error) = at {
            let io = error.downcast_ref::<std::io::Error>();
            if io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut) {
                return CallError::Timeout(self.timeout);
            }
            texts.push(error.to_string());
            at = error.source();
        }
        // Libraries repeat their source's text in their own.
        texts.dedup();
        CallError::Network(texts.join(": "))
    }

    fn log_bad(&self, body: &[u8]) {
        let text = String::from_utf8_lossy(body.get(..256).unwrap_or(body));
        tracing::debug!(webhook = self.name, body = &*text, "webhook's answer is not usable");
    }
}

/// The start of a text of the webhook's. Log it as a string: those are escaped.
pub(crate) fn preview(text: &str) -> String {
    text.chars().take(256).collect()
}

/// Whether an answer that denies says so, rather than not being an answer at all.
fn says_allowed(body: &[u8]) -> bool {
    let keys: Result<BTreeMap<Cow<'_, str>, &RawValue>, _> = serde_json::from_slice(body);
    keys.is_ok_and(|keys| keys.keys().any(|key| key.eq_ignore_ascii_case("allowed")))
}
