//! Reads the API server's audit log exactly: who wrote what.
//!
//! The log is written in blocking mode and each request twice: when it was received, before it is acted on, and when
//! it was answered. So a request whose answer a client has seen is in the file at least as received, and a reader that
//! waits for the second entry of every first one misses nothing.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;

pub(crate) const LOG: &str = "audit.log";

/// Every write at the level of metadata, every read by a ServiceAccount, and all reads of Leases and of admission
/// configurations; questions that the API takes as `create` are not writes.
pub(crate) const POLICY: &str = r"apiVersion: audit.k8s.io/v1
kind: Policy
rules:
  - level: None
    resources:
      - group: authentication.k8s.io
      - group: authorization.k8s.io
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
  - level: Metadata
    verbs: [get, list, watch]
    userGroups: ['system:serviceaccounts']
  - level: Metadata
    verbs: [get, list, watch]
    resources:
      - group: coordination.k8s.io
      - group: admissionregistration.k8s.io
  - level: None
";

const READS: [&str; 3] = ["get", "list", "watch"];

/// The API server answers or gives up within a minute.
const ANSWERED_WITHIN: Duration = Duration::from_secs(70);

/// The API server's audit log.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A moment in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

/// One request that the API server received and answered, granted or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEvent {
    /// `create`, `update`, `patch`, `delete` or `deletecollection`; of reads, `get`, `list` or `watch`.
    pub verb: String,
    /// The resource's API group; empty for the core group.
    pub api_group: String,
    /// The resource in its plural form, `configmaps`.
    pub resource: String,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: String,
    /// The object's namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name; empty where the server made it up (`generateName`).
    pub name: String,
    /// The user who sent the request.
    pub user: String,
    /// The parameters of the request, as they were sent: selectors, limits.
    pub query: String,
    /// The user agent of the request.
    pub user_agent: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// Whether it was a dry run, which persists nothing.
    pub dry_run: bool,
    /// When the request was received.
    pub at: Timestamp,
}

impl AuditLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Marks this moment, for the requests after it.
    ///
    /// # Panics
    /// When the log cannot be read.
    pub fn mark(&self) -> Mark {
        Mark(self.read(0).len())
    }

    /// Every write by `user` since `mark`, in the order in which they were received. Refused ones and dry runs are
    /// included; see [`AuditEvent::code`] and [`AuditEvent::dry_run`].
    ///
    /// # Panics
    /// When the log cannot be read, or a request is not answered within 70 s.
    pub async fn writes_by(&self, user: &str, mark: Mark) -> Vec<AuditEvent> {
        let mut events = self.writes(mark).await;
        events.retain(|event| event.user == user);
        events
    }

    /// Every write by anyone since `mark`.
    ///
    /// # Panics
    /// When the log cannot be read, or a request is not answered within 70 s.
    pub async fn writes(&self, mark: Mark) -> Vec<AuditEvent> {
        let mut events = self.all(mark).await;
        events.retain(|event| !READS.contains(&event.verb.as_str()));
        events
    }

    /// Every read by `user` since `mark`; of users that are no ServiceAccounts, those of Leases, webhook configurations
    /// and admission policies alone. A watch is one read, however long it lasts.
    ///
    /// # Panics
    /// When the log cannot be read, or a request is not answered within 70 s.
    pub async fn reads_by(&self, user: &str, mark: Mark) -> Vec<AuditEvent> {
        let mut events = self.all(mark).await;
        events.retain(|event| event.user == user && READS.contains(&event.verb.as_str()));
        events
    }

    async fn all(&self, mark: Mark) -> Vec<AuditEvent> {
        let deadline = Instant::now() + ANSWERED_WITHIN;
        // Requests that arrive after this call do not count: they may never end.
        let asked = self.mark();
        loop {
            let text = self.read(mark.0);
            let (received, rest) = text.split_at(asked.0.saturating_sub(mark.0).min(text.len()));
            match pair(received, rest) {
                Ok(events) => return events,
                Err(open) if Instant::now() >= deadline => {
                    panic!("the API server has not answered within {ANSWERED_WITHIN:?}: {open}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// The log's whole lines from this offset on.
    fn read(&self, offset: usize) -> String {
        let read = || {
            use std::io::{Read as _, Seek as _, SeekFrom};
            let mut file = std::fs::File::open(&self.path)?;
            file.seek(SeekFrom::Start(offset as u64))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
            String::from_utf8(text).map_err(std::io::Error::other)
        };
        read().unwrap_or_else(|error| panic!("cannot read {}: {error}", self.path.display()))
    }
}

impl fmt::Display for AuditEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.user, self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        write!(f, " {}/{}: {}", self.namespace, self.name, self.code)?;
        if self.dry_run { f.write_str(" (dry run)") } else { Ok(()) }
    }
}

/// An entry of the log, `audit.k8s.io/v1` Event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: Named,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct Named {
    /// Empty where the client is unknown: a 401.
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

/// The answered requests among those `received`; their answers may come in `rest`. The error is a request without one.
fn pair(received: &str, rest: &str) -> Result<Vec<AuditEvent>, String> {
    let parse = |line: &str| -> Entry {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("unknown entry in the audit log: {error}: {line}"))
    };
    let mut order: Vec<(String, String)> = Vec::new();
    let mut answered = BTreeMap::new();
    for entry in received.lines().map(parse) {
        if entry.stage == "RequestReceived" {
            order.push((entry.audit_id, entry.request_uri));
        } else {
            answered.insert(entry.audit_id.clone(), entry);
        }
    }
    answered.extend(rest.lines().map(parse).filter(|e| e.stage != "RequestReceived").map(|e| (e.audit_id.clone(), e)));
    order.into_iter().map(|(id, uri)| answered.remove(&id).map(AuditEvent::from).ok_or(uri)).collect()
}

impl From<Entry> for AuditEvent {
    fn from(entry: Entry) -> Self {
        let query = entry.request_uri.split_once('?').map_or("", |(_, query)| query);
        Self {
            dry_run: query.split('&').any(|pair| pair.starts_with("dryRun=") && pair != "dryRun="),
            verb: entry.verb,
            api_group: entry.object_ref.api_group,
            resource: entry.object_ref.resource,
            subresource: entry.object_ref.subresource,
            namespace: entry.object_ref.namespace,
            name: entry.object_ref.name,
            user: entry.user.username,
            query: query.to_owned(),
            user_agent: entry.user_agent,
            code: entry.response_status.map_or(0, |status| status.code),
            at: entry.request_received_timestamp,
        }
    }
}
