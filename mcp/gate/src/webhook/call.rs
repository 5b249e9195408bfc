//! One webhook and one call of it: signature, deadline, limits, and how its answer counts (toolhive-runner §3.4–§3.9).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use mcp_http::client::{Client, ClientTls, RequestError, RequestLimits, TlsFile};
use mcp_http::file::rooted;
use mcp_middleware::{BuildContext, BuildError, Guard, beside};
use mcp_runconfig::TOOL_CALL_FILTER;
use mcp_runconfig::endpoint::EndpointPolicy;
use mcp_runconfig::webhook::{FailurePolicy, Mode, Response, Selector, TlsConfig, WebhookConfig};
use serde_json::value::RawValue;

use super::signature::HmacFile;
use super::trial::Trial;

const SIGNATURE: HeaderName = HeaderName::from_static("x-toolhive-signature");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-toolhive-timestamp");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));

/// One webhook, ready to be called.
pub(crate) struct Webhook {
    pub(crate) name: String,
    pub(crate) policy: FailurePolicy,
    /// The messages that it is asked about.
    pub(crate) selector: Selector,
    /// Its calls where it is only tried.
    pub(super) trial: Option<Trial>,
    timeout: Duration,
    secret: Option<HmacFile>,
    client: Client,
    /// The counters of its decisions.
    pub(crate) guard: Guard,
}

/// A call that brought no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Network(String),
    /// There was no call: this process could not make it.
    #[error("local error: {0}")]
    Local(String),
    #[error("invalid response: {problem}")]
    Invalid { status: StatusCode, problem: String },
    /// A long answer has its status all the same: a webhook that quotes what it refuses has a long one where the caller sent much.
    #[error("invalid response: the answer is longer than {limit} bytes")]
    TooLong { status: StatusCode, limit: usize },
}

/// The statuses by which a webhook says that the request is at fault, and not the webhook: its reader refuses what the caller wrote.
const BLAMES: [StatusCode; 5] = [
    StatusCode::BAD_REQUEST,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::URI_TOO_LONG,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
];

impl CallError {
    /// HTTP 422 denies whatever the failure policy.
    pub(crate) fn is_unprocessable(&self) -> bool {
        self.status() == Some(StatusCode::UNPROCESSABLE_ENTITY)
    }

    /// Whether the webhook says that the request is at fault.
    pub(crate) fn blames_request(&self) -> bool {
        self.status().is_some_and(|status| BLAMES.contains(&status))
    }

    fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Invalid { status, .. } | Self::TooLong { status, .. } => Some(*status),
            Self::Timeout(_) | Self::Network(_) | Self::Local(_) => None,
        }
    }

    /// A call that was not made refuses whatever the failure policy: who may read no key could pass every webhook (toolhive-0.63 §4.5).
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::Network(_) => "network",
            Self::Local(_) => "local error",
            Self::Invalid { .. } | Self::TooLong { .. } if self.blames_request() => "request blamed",
            Self::Invalid { .. } | Self::TooLong { .. } => "invalid response",
        }
    }
}

/// Refuses the webhook at position `at` of its middleware when it breaks a rule.
pub(crate) fn check(config: &WebhookConfig, at: usize, context: &BuildContext) -> Result<(), BuildError> {
    if config.portcullis.r#match.tools.is_some() && context.is_outside_of(TOOL_CALL_FILTER) {
        let problem = "would be compared with the names of clients, which tool-call-filter changes afterwards";
        return Err(context.error(&member(at, "portcullis.match.tools"), problem, "put the webhooks behind it"));
    }
    let problems = config.problems();
    let Some(problem) = problems.first() else { return Ok(()) };
    // The URL that a problem quotes may have a semicolon, too.
    let (text, fix) = problem.message.rsplit_once("; ").unwrap_or((&problem.message, "write another value"));
    Err(context.error(&member(at, problem.field), text, fix))
}

fn member(at: usize, field: &str) -> String {
    format!("parameters.webhooks[{at}].{field}")
}

impl Webhook {
    /// Checks `config`, the webhook at position `at` of its middleware, and reads every file it names. A shadow's may come later.
    pub(crate) fn new(config: WebhookConfig, at: usize, context: &BuildContext) -> Result<Self, BuildError> {
        check(&config, at, context)?;
        let member = |field: &str| member(at, field);
        let WebhookConfig { name, url, timeout, failure_policy: policy, tls_config, hmac_secret_ref, portcullis } =
            config;
        let selector = Selector::new(&portcullis.r#match);
        let is_tried = portcullis.mode == Mode::Shadow;
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
            // A trial takes no proxy down: without its files, a shadow's calls fail.
            if !is_tried {
                file.key().map_err(fail)?;
            }
            Some(file)
        };
        let fail = |field: &str, problem: String, fix: &str| {
            context.error(&member(&format!("tls_config.{field}")), problem, fix)
        };
        let tls = client_tls(&tls_config.unwrap_or_default(), context.settings.files_root.as_deref())
            .map_err(|(field, problem)| fail(field, problem, "write an absolute path"))?;
        let endpoints = EndpointPolicy {
            egress: context.settings.egress.clone(),
            ..EndpointPolicy::all_but_metadata(context.settings.exempt_endpoints.clone())
        };
        let provider = &context.settings.provider;
        let client = if is_tried {
            Client::waiting(&name, &uri, tls, Some(endpoints), provider)
        } else {
            Client::new(&name, &uri, tls, Some(endpoints), provider).map_err(|error| {
                fail(field(error.file), error.problem, "mount the Secret there, with the content in PEM")
            })?
        };
        let guard = context.webhook(&name);
        let trial = is_tried.then(|| Trial::new(context.shadow(Some(&name))));
        Ok(Self { name, policy, selector, trial, timeout: timeout.duration(), secret, client, guard })
    }

    /// Logs whom it asks, and loudly that it would believe anybody.
    pub(crate) fn announce(&self) {
        let (webhook, policy, signed) = (&self.name, self.policy.as_str(), self.secret.is_some());
        // The host alone: paths and queries of webhooks may hold tokens.
        let host = self.client.server().host().unwrap_or_default();
        if self.client.is_insecure() {
            tracing::warn!(
                webhook,
                host,
                "insecure_skip_verify is set: the webhook's certificate is NOT checked, anybody on the path can answer"
            );
        }
        let (selective, shadow) = (!self.selector.is_all(), self.trial.is_some());
        tracing::info!(webhook, host, policy, signed, selective, shadow, "webhook configured");
    }

    /// Posts `payload` and reads an answer of up to `longest` bytes, all within the webhook's timeout.
    pub(crate) async fn call(&self, payload: Bytes, longest: usize) -> Result<Response, CallError> {
        let started = Instant::now();
        let outcome = self.exchange(payload, longest).await;
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let result =
            outcome.as_ref().map_or_else(CallError::class, |answer| if answer.allowed { "allowed" } else { "denied" });
        tracing::debug!(webhook = self.name, result, micros, "webhook called");
        outcome
    }

    async fn exchange(&self, payload: Bytes, longest: usize) -> Result<Response, CallError> {
        let headers = self.headers(&payload).await?;
        let limits = RequestLimits { time: self.timeout, answer: longest };
        let answer = self.client.post(headers, payload, limits).await.map_err(|error| match error {
            RequestError::Timeout(time) => CallError::Timeout(time),
            RequestError::TooLong(limit, status, _) => CallError::TooLong { status, limit },
            error => CallError::Network(error.to_string()),
        })?;
        let (status, body) = (answer.status(), answer.into_body());
        if status.is_server_error() {
            return Err(CallError::Network(format!("HTTP {}", status.as_u16())));
        }
        if status != StatusCode::OK {
            self.log_bad(&body);
            let problem = format!("HTTP {}; only 200 is an answer, and redirects are not followed", status.as_u16());
            return Err(CallError::Invalid { status, problem });
        }
        // `null` is the empty answer, which denies.
        let answer: Option<Response> = serde_json::from_slice(&body).map_err(|error| {
            self.log_bad(&body);
            CallError::Invalid { status, problem: error.to_string() }
        })?;
        let answer = answer.unwrap_or_default();
        if !answer.allowed {
            self.log_denial(says_allowed(&body), &answer.reason, &answer.message);
        }
        Ok(answer)
    }

    async fn headers(&self, payload: &Bytes) -> Result<HeaderMap, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, AGENT);
        if let Some(secret) = &self.secret {
            let key = secret.key().map_err(|problem| CallError::Local(format!("HMAC key: {problem}")))?;
            let timestamp = jiff::Timestamp::now().as_second().to_string();
            let value = |text: String| HeaderValue::try_from(text).map_err(|error| CallError::Local(error.to_string()));
            let (signed, at) = (payload.clone(), timestamp.clone());
            let signature = beside(payload.len(), move || key.sign(&at, &signed)).await;
            headers.insert(SIGNATURE, value(signature)?);
            headers.insert(TIMESTAMP, value(timestamp)?);
        }
        Ok(headers)
    }

    fn log_bad(&self, body: &[u8]) {
        let text = String::from_utf8_lossy(body.get(..256).unwrap_or(body));
        tracing::debug!(webhook = self.name, body = &*text, "webhook's answer is not usable");
    }
}

/// Where the files of `tls` are; `Err` names the member that is no absolute path.
fn client_tls(tls: &TlsConfig, root: Option<&Path>) -> Result<ClientTls, (&'static str, String)> {
    let locate = |file: TlsFile, path: &str| match rooted(path, root) {
        _ if path.is_empty() => Ok(None),
        Some(path) => Ok(Some(path)),
        None => Err((field(file), format!("{path:?} is not an absolute path"))),
    };
    let certificate = locate(TlsFile::Certificate, &tls.client_cert_path)?;
    let key = locate(TlsFile::Key, &tls.client_key_path)?;
    Ok(ClientTls {
        ca: locate(TlsFile::Ca, &tls.ca_bundle_path)?,
        pair: certificate.zip(key),
        insecure: tls.insecure_skip_verify,
    })
}

/// The member of `tls_config` that names the file.
fn field(file: TlsFile) -> &'static str {
    match file {
        TlsFile::Ca => "ca_bundle_path",
        TlsFile::Certificate => "client_cert_path",
        TlsFile::Key => "client_key_path",
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
