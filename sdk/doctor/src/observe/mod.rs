//! Reads the parts that checks declare: nothing is changed, every list has an end, and a refusal is written down.

mod cert_manager;
mod cluster;
mod installed;
mod listener;
mod read;
mod rights;

use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use rustls::crypto::CryptoProvider;

use super::parts::{Part, Snapshot, View, with_parts};
use super::snapshot::{Listed, Look};
use super::subject::{Options, Subject};
use read::Reader;

/// The means to read a part: a client, and the parts that were read before.
pub(super) struct Reading<'a> {
    reader: &'a Reader,
    provider: &'a Arc<CryptoProvider>,
    view: View<'a>,
}

/// Stores the value that was read of one part.
type Fill = Box<dyn FnOnce(&mut Snapshot) + Send>;

macro_rules! readers {
    ($($(#[$doc:meta])+ $part:ident $field:ident: $type:ty, $what:literal, [$($after:ident)*], $read:path;)+) => {
        /// Reads one part.
        async fn read(part: Part, reading: &Reading<'_>) -> Fill {
            match part {
                $(Part::$part => {
                    let found = $read(reading).await;
                    Box::new(move |snapshot| snapshot.$field = found)
                })+
            }
        }
    };
}
with_parts!(readers);

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
        let found = join_all(next.into_iter().map(|part| read(part, &reading))).await;
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
