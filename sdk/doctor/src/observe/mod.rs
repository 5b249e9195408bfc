//! Reads the parts that checks declare: nothing is changed, every list has an end, and a refusal is written down.

pub(super) mod cert_manager;
pub(super) mod cluster;
pub(super) mod installed;
pub(super) mod listener;
mod read;
pub(super) mod rights;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use rustls::crypto::CryptoProvider;

use super::lookups::View;
use super::parts::{Part, Snapshot};
use super::snapshot::{Listed, Look};
use super::subject::Subject;
use read::Reader;

/// Questions about an installation, beside whether it works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Check only objects of this namespace, and whether the webhooks are called for it.
    pub in_namespace: Option<String>,
    /// An object whose deletion takes longer counts as stuck.
    pub stuck_after: Duration,
    /// Call the pods by their addresses, which works inside the cluster.
    pub call_pods: bool,
    /// The message of a refusal to explain.
    pub denial: Option<String>,
    /// Name of an object, to find decisions about it in the logs.
    pub object: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { in_namespace: None, stuck_after: Duration::from_mins(2), call_pods: false, denial: None, object: None }
    }
}

/// The means to read a part: a client, and the parts that were read before.
pub(super) struct Reading<'a> {
    reader: &'a Reader,
    provider: &'a Arc<CryptoProvider>,
    view: View<'a>,
}

/// Reads these parts, and those that say where to find them. Each request has a deadline.
pub(super) async fn observe(
    client: Client,
    provider: &Arc<CryptoProvider>,
    subject: &Subject,
    options: &Options,
    parts: &[Part],
) -> Snapshot {
    let reader = Reader::new(client);
    let mut snapshot = Snapshot { now: Timestamp::now(), options: options.clone(), ..Snapshot::default() };
    let mut left: Vec<Part> = Part::ALL.iter().copied().filter(|part| part.is_read_for(parts)).collect();
    let mut first = true;
    while !left.is_empty() {
        let (next, later): (Vec<Part>, Vec<Part>) =
            left.iter().partition(|part| !part.after().iter().any(|earlier| left.contains(earlier)));
        let reading =
            Reading { reader: &reader, provider, view: View { subject, snapshot: &snapshot, parts: Part::ALL } };
        let found = join_all(next.into_iter().map(|part| part.read(&reading))).await;
        for fill in found {
            fill(&mut snapshot);
        }
        if first {
            // Times in the lists that have just been read are compared with it.
            snapshot.now = reader.server_time().await.unwrap_or_else(Timestamp::now);
            first = false;
        }
        left = later;
    }
    snapshot.requests = reader.requests();
    snapshot
}

/// Two lists as one; where either could not be read, neither was.
fn both<T>(one: Look<Listed<T>>, other: Look<Listed<T>>) -> Look<Listed<T>> {
    match (one, other) {
        (Look::Seen(mut one), Look::Seen(other)) => {
            one.items.extend(other.items);
            one.more |= other.more;
            Look::Seen(one)
        }
        (Look::Seen(_), blind) | (blind, _) => blind,
    }
}

#[cfg(test)]
mod tests;
