//! How a request webhook is configured, and the rules it must keep (toolhive-runner §3.2).

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use super::{DEFAULT_TIMEOUT, MAX_TIMEOUT, MIN_TIMEOUT, Match, Problem};
use crate::{duration, endpoint::without_secrets};

/// Parameters of the two webhook middleware. Rules between members are checked by [`WebhookConfig::validate`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookParameters {
    /// The webhooks, called in this order. At least one.
    #[serde(deserialize_with = "not_empty")]
    pub webhooks: Vec<WebhookConfig>,
    /// Name of the MCP server, told to each webhook.
    #[serde(default)]
    pub server_name: String,
    /// Transport of the MCP server, told to each webhook.
    #[serde(default)]
    pub transport: String,
}

/// One webhook. Secrets appear only as the paths of the files that hold them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookConfig {
    /// Name, for logs.
    #[serde(default)]
    pub name: String,
    /// Where requests are posted.
    #[serde(default)]
    pub url: String,
    /// How long a call may take in all.
    #[serde(default)]
    pub timeout: Timeout,
    /// What an unreachable or broken webhook means.
    pub failure_policy: FailurePolicy,
    /// TLS of the call; absent means the system's roots and no client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<TlsConfig>,
    /// Absolute path of the file with the HMAC key; empty means calls are not signed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hmac_secret_ref: String,
    /// Members that ToolHive's document does not have.
    #[serde(default, skip_serializing_if = "WebhookAdditions::is_empty")]
    pub portcullis: WebhookAdditions,
}

/// Members of a webhook that ToolHive's document does not have. Its runner ignores them: it asks the webhook about everything, and does as
/// the webhook says. A proxy of this version refuses one that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookAdditions {
    /// The messages that the webhook is asked about.
    #[serde(skip_serializing_if = "Match::is_all")]
    pub r#match: Match,
    /// Whether the webhook decides.
    #[serde(skip_serializing_if = "Mode::is_enforce")]
    pub mode: Mode,
}

/// TLS of the calls of one webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
}

/// What an unreachable or broken webhook means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailurePolicy {
    /// The request is refused.
    Fail,
    /// The request goes on.
    Ignore,
}

/// Whether a webhook decides about the messages that it is asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It is asked, and what it says is counted alone.
    Shadow,
}

/// How long a webhook may take, as written: integer nanoseconds (what the operators write) or a Go duration.
/// 0 stands for [`DEFAULT_TIMEOUT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Timeout(i64);

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

impl WebhookConfig {
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
        problems.extend(self.portcullis.r#match.problems());
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

impl WebhookAdditions {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Mode {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
    fn is_enforce(&self) -> bool {
        *self == Self::Enforce
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
}

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        duration::nanoseconds(&Value::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
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

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<WebhookConfig>, D::Error> {
    let webhooks = Vec::deserialize(deserializer)?;
    if webhooks.is_empty() {
        return Err(D::Error::custom("names no webhook; add one or drop the middleware"));
    }
    Ok(webhooks)
}
