//! How a request webhook is configured, and the rules it must keep (toolhive-runner §3.2).

use std::{fmt, time::Duration};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{DEFAULT_TIMEOUT, MAX_TIMEOUT, MIN_TIMEOUT};
use crate::{
    Parameters, ParseError, duration,
    endpoint::without_secrets,
    members::{Members, wrong_type},
};

/// Parameters of the two webhook middleware. Rules between members are checked by [`WebhookConfig::validate`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WebhookParameters {
    /// The webhooks, called in this order. At least one.
    pub webhooks: Vec<WebhookConfig>,
    /// Name of the MCP server, told to each webhook.
    pub server_name: String,
    /// Transport of the MCP server, told to each webhook.
    pub transport: String,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One webhook. Secrets appear only as the paths of the files that hold them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WebhookConfig {
    /// Name, for logs.
    pub name: String,
    /// Where requests are posted.
    pub url: String,
    /// How long a call may take in all.
    pub timeout: Timeout,
    /// What an unreachable or broken webhook means.
    pub failure_policy: FailurePolicy,
    /// TLS of the call; absent means the system's roots and no client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<TlsConfig>,
    /// Absolute path of the file with the HMAC key; empty means calls are not signed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hmac_secret_ref: String,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// TLS of the calls of one webhook.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TlsConfig {
    /// File with the only roots that are trusted; empty means the system's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_bundle_path: String,
    /// File with the client certificate; empty means none. Set together with the key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_cert_path: String,
    /// File with the client key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_key_path: String,
    /// Allows `http://` and turns certificate checks off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What an unreachable or broken webhook means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailurePolicy {
    /// The request is refused.
    Fail,
    /// The request goes on.
    Ignore,
}

/// How long a webhook may take, as written: integer nanoseconds (what the operators write) or a Go duration.
/// 0 stands for [`DEFAULT_TIMEOUT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Timeout(i64);

/// One rule that a webhook breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The member, in the document's spelling, such as `tls_config.client_key_path`.
    pub field: &'static str,
    /// What is wrong and how to mend it.
    pub message: String,
}

/// A webhook that breaks rules. Its author has to mend all of them; no call can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("webhook {name:?}: {}", Sentences(.problems))]
pub struct InvalidWebhook {
    /// The webhook's name.
    pub name: String,
    /// Every rule it breaks.
    pub problems: Vec<Problem>,
}

struct Sentences<'a>(&'a [Problem]);

impl Parameters for WebhookParameters {
    fn read(parameters: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(parameters, path)?;
        let entries = members.list("webhooks")?;
        if entries.is_empty() {
            return Err(ParseError::new(
                members.path("webhooks"),
                "names no webhook",
                "add one or drop the middleware",
            ));
        }
        let webhooks = entries
            .into_iter()
            .enumerate()
            .map(|(at, entry)| WebhookConfig::from_value(entry, &format!("{}[{at}]", members.path("webhooks"))))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            webhooks,
            server_name: members.string("server_name")?.unwrap_or_default(),
            transport: members.string("transport")?.unwrap_or_default(),
            extra: members.rest(),
        })
    }
}

impl WebhookConfig {
    /// Reads one webhook that lies at `path` in its document.
    ///
    /// # Errors
    /// Names the member, what is wrong with it and what to write instead.
    pub fn from_value(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        let policy = [("fail", FailurePolicy::Fail), ("ignore", FailurePolicy::Ignore)];
        let tls = members.value("tls_config");
        Ok(Self {
            name: members.string("name")?.unwrap_or_default(),
            url: members.string("url")?.unwrap_or_default(),
            timeout: Timeout::from_value(members.value("timeout"), &members.path("timeout"))?,
            failure_policy: members.word("failure_policy", &policy)?.ok_or_else(|| {
                ParseError::new(members.path("failure_policy"), "is missing", "use \"fail\" or \"ignore\"")
            })?,
            tls_config: tls.map(|value| TlsConfig::from_value(value, &members.path("tls_config"))).transpose()?,
            hmac_secret_ref: members.string("hmac_secret_ref")?.unwrap_or_default(),
            extra: members.rest(),
        })
    }

    /// Every rule this webhook breaks; empty when it may be used. Whether the named files exist is for the caller.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut broken = |field, message: String| problems.push(Problem { field, message });
        if self.name.is_empty() {
            broken("name", "is empty; give the webhook a name".to_owned());
        }
        let tls = self.tls_config.clone().unwrap_or_default();
        if let Err(message) = check_url(&self.url, tls.insecure_skip_verify) {
            broken("url", message);
        }
        if let Err(message) = self.timeout.check() {
            broken("timeout", message);
        }
        match (tls.client_cert_path.is_empty(), tls.client_key_path.is_empty()) {
            (false, true) => broken(
                "tls_config.client_key_path",
                "is missing while a client certificate is set; set both or neither".to_owned(),
            ),
            (true, false) => broken(
                "tls_config.client_cert_path",
                "is missing while a client key is set; set both or neither".to_owned(),
            ),
            _ => {}
        }
        problems
    }

    /// Checks every rule of one webhook.
    ///
    /// # Errors
    /// All the rules it breaks, together.
    pub fn validate(&self) -> Result<(), InvalidWebhook> {
        let problems = self.problems();
        if problems.is_empty() { Ok(()) } else { Err(InvalidWebhook { name: self.name.clone(), problems }) }
    }
}

impl TlsConfig {
    fn from_value(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        Ok(Self {
            ca_bundle_path: members.string("ca_bundle_path")?.unwrap_or_default(),
            client_cert_path: members.string("client_cert_path")?.unwrap_or_default(),
            client_key_path: members.string("client_key_path")?.unwrap_or_default(),
            insecure_skip_verify: members.boolean("insecure_skip_verify")?,
            extra: members.rest(),
        })
    }
}

impl FailurePolicy {
    /// The word in the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Ignore => "ignore",
        }
    }
}

impl Timeout {
    /// A timeout of so many nanoseconds; 0 stands for the default.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The nanoseconds as written.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// How long a call may take: what is written, or [`DEFAULT_TIMEOUT`] for 0 (and for what [`check`](Self::check)
    /// refuses as negative).
    pub fn duration(self) -> Duration {
        match u64::try_from(self.0) {
            Ok(0) | Err(_) => DEFAULT_TIMEOUT,
            Ok(nanos) => Duration::from_nanos(nanos),
        }
    }

    /// Whether it is 0 or within [`MIN_TIMEOUT`]`..=`[`MAX_TIMEOUT`].
    ///
    /// # Errors
    /// A sentence that names the limits.
    pub fn check(self) -> Result<(), String> {
        let (min, max) = (MIN_TIMEOUT.as_nanos(), MAX_TIMEOUT.as_nanos());
        if self.0 == 0 || (min..=max).contains(&u128::try_from(self.0).unwrap_or(0)) {
            return Ok(());
        }
        Err(format!("{} is out of range; use 1s to 30s, or leave it out for 10s", duration::format(self.0)))
    }

    fn from_value(value: Option<Value>, path: &str) -> Result<Self, ParseError> {
        match value {
            None => Ok(Self::default()),
            Some(Value::String(text)) => duration::parse(&text)
                .map(Self)
                .map_err(|error| ParseError::new(path, error.to_string(), "use 1s to 30s")),
            Some(value) => value
                .as_i64()
                .map(Self)
                .ok_or_else(|| wrong_type(path, &value, "a Go duration such as \"5s\", or integer nanoseconds")),
        }
    }
}

impl fmt::Display for Sentences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Problem { field, message }) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", and " };
            write!(f, "{separator}{field} {message}")?;
        }
        Ok(())
    }
}

fn check_url(url: &str, insecure: bool) -> Result<(), String> {
    let fix = "write an absolute URL such as https://policy.example.svc/check";
    if url.is_empty() {
        return Err(format!("is empty; {fix}"));
    }
    let shown = without_secrets(url);
    let uri: http::Uri = url.parse().map_err(|error| format!("{shown:?} is not a URL ({error}); {fix}"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(format!("{shown:?} is not absolute; {fix}"));
    };
    let port = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    if authority.host().is_empty() || port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(format!("{shown:?} has no usable host and port; {fix}"));
    }
    match scheme {
        "https" => Ok(()),
        "http" if insecure => Ok(()),
        "http" => {
            Err(format!("{shown:?} is not https; use https:// (http:// only while certificate checks are skipped)"))
        }
        other => Err(format!("{shown:?} has the scheme {other:?}; use https://")),
    }
}
