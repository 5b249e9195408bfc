//! The bundle that objects should carry, and the state of each object.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use portcullis_pki::check_trust;
use tokio::time::Instant;

use super::target::Entry;
use crate::ServingCertificate;

/// The state of each object, by kind and name, and since when it has been so.
pub(super) type States = BTreeMap<String, (State, Instant)>;

/// The trust that callers need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This bundle, byte for byte.
    Held(Arc<str>),
    /// Any bundle under which callers accept this chain, such as `bundle`, the one in the Secret.
    Accepted { chain: Arc<str>, bundle: Arc<str> },
}

/// The state of an object when it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has these entries of ours, by name, with their bundles.
    Carries(Vec<(String, Option<Vec<u8>>)>),
    /// It could not be read or written, for this reason.
    Waits(String),
    /// The API server cannot call us through it, for this reason.
    Absent(String),
}

impl Wanted {
    /// Wants callers to accept the chain of `material`.
    pub(super) fn accepted(material: &ServingCertificate) -> Self {
        let (chain, bundle) = (Arc::from(&*material.cert_pem), Arc::from(&*material.ca_pem));
        Self::Accepted { chain, bundle }
    }

    pub(super) fn bundle(&self) -> &Arc<str> {
        match self {
            Self::Held(bundle) | Self::Accepted { bundle, .. } => bundle,
        }
    }

    /// The reason why callers with this bundle do not trust what they must at `now`; `None` when they do.
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
