//! What is wanted of the objects, and how each of them stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use portcullis_pki::check_trust;
use tokio::time::Instant;

use super::target::Entry;
use crate::ServingCertificate;

/// How each object stands, by kind and name, and since when.
pub(super) type States = BTreeMap<String, (State, Instant)>;

/// What callers must trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This bundle, byte for byte.
    Held(Arc<str>),
    /// Whatever makes them accept this chain; the bundle is what they would trust at best.
    Accepted { chain: Arc<str>, bundle: Arc<str> },
}

/// How an object stands, as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// These are the names and the bundles of its entries of ours.
    Carries(Vec<(String, Option<Vec<u8>>)>),
    /// It could not be read or written, for this reason.
    Waits(String),
    /// Nobody calls us because of it, for this reason.
    Absent(String),
}

impl Wanted {
    /// That callers accept the chain of `material`.
    pub(super) fn accepted(material: &ServingCertificate) -> Self {
        let (chain, bundle) = (Arc::from(&*material.cert_pem), Arc::from(&*material.ca_pem));
        Self::Accepted { chain, bundle }
    }

    pub(super) fn bundle(&self) -> &Arc<str> {
        match self {
            Self::Held(bundle) | Self::Accepted { bundle, .. } => bundle,
        }
    }

    /// Why callers with this bundle do not trust what they must, at `now`; `None` when they do.
    pub(super) fn missing(&self, carried: Option<&[u8]>, now: Timestamp) -> Option<String> {
        match self {
            Self::Held(bundle) => (carried != Some(bundle.as_bytes())).then(String::new),
            Self::Accepted { chain, .. } => {
                let carried = carried.unwrap_or_default();
                check_trust(chain.as_bytes(), carried, now).err().map(|problem| problem.to_string())
            }
        }
    }
}

impl State {
    pub(super) fn carries<'a>(entries: impl IntoIterator<Item = &'a Entry<'a>>) -> Self {
        let entries = entries.into_iter();
        Self::Carries(entries.map(|entry| (entry.name.to_owned(), entry.bundle.map(<[u8]>::to_vec))).collect())
    }
}
