//! The Lease by which one process at a time runs the controllers, and what becomes of it.
//!
//! A session marks the Lease that it creates; whoever else takes it later takes the mark away. So a Lease with the mark
//! is one that only sessions ever held, and goes with the last of them.

use std::fmt;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use portcullis_lease::{Record, Timing};
use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::cluster::{call, is_code};
use super::session_mark::SessionMark;
use super::text::say;
use crate::Installation;
use crate::leases::Election;

/// How often it is looked at who leads.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is looked whether the holder of a Lease lives.
const ALIVE: Duration = Duration::from_secs(1);
/// How long the Lease of a session lasts at most, whatever it says.
const LASTS: Duration = Timing::SCOPE.duration();
/// How the identities of sessions begin. No Pod has such a name.
pub(super) const SESSION: &str = "dev/";

#[derive(Clone)]
pub(super) struct SessionLease {
    api: Api<Lease>,
    pub(super) namespace: String,
    name: String,
    /// What ends the installed replicas.
    room: String,
}

/// What was found where a session may have left its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    /// Nothing of sessions.
    Nothing,
    /// Nothing any more.
    Clear,
    /// A session that is at work.
    Taken,
}

/// Who holds it, without what makes it one of several of that name.
fn who(holder: &str) -> &str {
    holder.rsplit_once('_').map_or(holder, |(who, _)| who)
}

/// Whose session it is.
fn owner(holder: &str) -> &str {
    who(holder).trim_start_matches(SESSION)
}

/// Whether a session holds it.
pub(super) fn is_session(record: &Record) -> bool {
    record.holder.as_ref().is_some_and(|holder| holder.starts_with(SESSION))
}

impl fmt::Display for SessionLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease {}/{}", self.namespace, self.name)
    }
}

impl SessionLease {
    /// That of this installation.
    pub(super) fn new(client: &Client, installation: &Installation) -> Self {
        let home = &installation.namespace;
        let (namespace, name) = match &installation.restricted_to {
            Some(namespace) => (namespace, installation.scope_lease.clone()),
            None => (&installation.leader_election_namespace, installation.leader_lease()),
        };
        Self {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.clone(),
            name,
            room: format!("kubectl -n {home} scale deployment {} --replicas=0", installation.release),
        }
    }

    /// The Lease, where sessions alone have ever held it.
    pub(super) async fn of_sessions(&self) -> anyhow::Result<Option<Lease>> {
        let Self { api, name, .. } = self;
        let found = call(&format!("read {self}"), api.get_opt(name)).await?;
        Ok(found.filter(|lease| {
            let record = Record::from(lease);
            SessionMark::of(&lease.metadata).is_some() && (record.holder.is_none() || is_session(&record))
        }))
    }

    /// Takes the Lease away that sessions left. That its holder is dead is seen, and not read from a clock: it does not
    /// renew for as long as the Lease lasts.
    pub(super) async fn sweep(&self) -> anyhow::Result<Swept> {
        let Some(mut left) = self.of_sessions().await? else { return Ok(Swept::Nothing) };
        let record = Record::from(&left);
        if let Some(holder) = &record.holder {
            let lasts = record.duration.unwrap_or(LASTS).min(LASTS);
            let (end, owner, seconds) = (Instant::now() + lasts, owner(holder), lasts.as_secs());
            say(&format!("{self}: looking for {seconds} s whether the session of {owner} lives"));
            while Instant::now() < end {
                sleep_until(end.min(Instant::now() + ALIVE)).await;
                let Some(lease) = self.of_sessions().await? else { return Ok(Swept::Clear) };
                let holder = Record::from(&lease).holder;
                if holder.is_some() && lease.spec != left.spec {
                    say(&format!("left {self}: the session that holds it lives"));
                    return Ok(Swept::Taken);
                }
                left = lease;
            }
        }
        self.delete(&left).await
    }

    /// Takes the Lease away that this session has given back, unless somebody else has taken it, or had it before.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let left = self.of_sessions().await?.filter(|lease| Record::from(lease).holder.is_none());
        if let Some(lease) = left {
            self.delete(&lease).await.context("it is free, and may stay")?;
        }
        Ok(())
    }

    /// As it was read: whoever takes it in between keeps it.
    async fn delete(&self, lease: &Lease) -> anyhow::Result<Swept> {
        let Self { api, name, .. } = self;
        let (uid, resource_version) = (lease.uid(), lease.resource_version());
        let this = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
        match call(&format!("delete {self}"), api.delete(name, &this)).await {
            Ok(_) => {
                say(&format!("removed {self}"));
                Ok(Swept::Clear)
            }
            Err(error) if is_code(&error, &[404]) => Ok(Swept::Clear),
            Err(error) if is_code(&error, &[409]) => Ok(Swept::Taken),
            Err(error) => Err(error),
        }
    }

    /// Says who leads, and again whenever that changes.
    pub(super) async fn tell(&self, election: &Election) {
        let mut last = None;
        loop {
            let now = self.state(election);
            if let Some(line) = now.filter(|line| last.as_ref() != Some(line)) {
                say(&line);
                last = Some(line);
            }
            sleep(LOOK).await;
        }
    }

    /// One line; nothing while it is not known, or about to change.
    fn state(&self, Election { lease, .. }: &Election) -> Option<String> {
        if lease.held().is_some() {
            return Some(format!("Controllers run here: this session holds the {self}."));
        }
        let health = lease.health();
        let Some(holder) = health.holder else {
            let error = health.last_error.filter(|_| !health.answered)?;
            return Some(format!("Controllers wait for the {self}: {error}"));
        };
        if holder == lease.identity() {
            return None;
        }
        let who = who(&holder);
        let room = match who.strip_prefix(SESSION) {
            Some(owner) => format!("it is the session of {owner}, which has to end first"),
            None => format!("to make room: {}", self.room),
        };
        Some(format!("Controllers wait: {who} leads, by the {self}; {room}"))
    }
}
