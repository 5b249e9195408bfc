//! The values of which a snapshot consists.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use portcullis_pki::Certificate;

/// The result of one read.
#[derive(Clone, Debug)]
pub(super) enum Look<T> {
    /// It was read.
    Seen(T),
    /// The caller may not read it: the verb, the resource and the namespace of the missing right.
    Refused(String),
    /// The API server did not answer, or with an error.
    Failed(String),
}

impl<T> Look<T> {
    /// The value, if it was read.
    pub(super) fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen(seen) => Some(seen),
            Self::Refused(_) | Self::Failed(_) => None,
        }
    }

    /// Applies a function to the value.
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> Look<U> {
        match self {
            Self::Seen(seen) => Look::Seen(f(seen)),
            Self::Refused(needs) => Look::Refused(needs),
            Self::Failed(why) => Look::Failed(why),
        }
    }

    /// The value, or why a check that needs it says nothing.
    pub(super) fn known(&self) -> Result<&T, String> {
        match self {
            Self::Seen(seen) => Ok(seen),
            Self::Refused(needs) => Err(format!("could not look: needs {needs}")),
            Self::Failed(why) => Err(format!("could not look: {why}")),
        }
    }
}

impl<T: Default> Default for Look<T> {
    fn default() -> Self {
        Self::Seen(T::default())
    }
}

/// A value that may have been read in part.
pub(super) trait Extent {
    /// Whether there is more of it than was read.
    fn is_cut(&self) -> bool {
        false
    }
}

impl<T> Extent for Option<T> {}

/// The beginning of a list.
#[derive(Clone, Debug)]
pub(super) struct Listed<T> {
    /// The first items.
    pub(super) items: Vec<T>,
    /// Whether there are more items.
    pub(super) more: bool,
}

impl<T> Extent for Listed<T> {
    fn is_cut(&self) -> bool {
        self.more
    }
}

impl<T> Deref for Listed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), more: false }
    }
}

impl<T> From<Vec<T>> for Listed<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, more: false }
    }
}

/// Namespace and name.
pub(super) type Place = (String, String);

/// A Secret. Its values are not shown in logs.
#[derive(Clone)]
pub(super) struct Stored(pub(super) Secret);

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.0.data.iter().flat_map(BTreeMap::keys).collect();
        f.debug_struct("Stored").field("metadata", &self.0.metadata).field("keys", &keys).finish_non_exhaustive()
    }
}

/// The end of the log of a pod of the operator.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// The pod's name.
    pub(super) pod: String,
    /// The last lines.
    pub(super) lines: Vec<String>,
}

/// cert-manager's objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Issuance {
    /// Whether its CRDs exist.
    pub(super) installed: bool,
    /// Certificates of the operator's namespace.
    pub(super) certificates: Listed<DynamicObject>,
    /// The Issuers and ClusterIssuers that those name, by kind and name; `None` where one is missing.
    pub(super) issuers: BTreeMap<Place, Option<DynamicObject>>,
    /// Deployments of cainjector in any namespace, where the caller may list them.
    pub(super) injectors: Option<Vec<Deployment>>,
}

impl Extent for Issuance {
    fn is_cut(&self) -> bool {
        self.certificates.more
    }
}

/// One right that the operator needs.
#[derive(Clone, Debug)]
pub(super) struct Right {
    /// Verb.
    pub(super) verb: String,
    /// Resource, name and namespace, as in `secrets entity-webhook-tls in namespace demo`.
    pub(super) on: String,
    /// Whether the API server allows it.
    pub(super) allowed: bool,
}

/// An address at which the webhooks should be served, and the result of a call to it.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    /// `pod NAME` or `Service NAME`.
    pub(super) target: String,
    /// The address that was called.
    pub(super) address: Option<SocketAddr>,
    /// The result.
    pub(super) reached: Reached,
}

/// The result of a call to a listener.
#[derive(Clone, Debug)]
pub(super) enum Reached {
    /// It answered over TLS.
    Answered(Box<Served>),
    /// Connection refused: nothing listens.
    Refused,
    /// No answer: the address may not be reachable from here.
    Unreachable(String),
    /// The TLS handshake failed.
    NoTls(String),
}

/// The certificate and the answers of a listener.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// Its certificate.
    pub(super) leaf: Certificate,
    /// Its answer to a GET of each path that the configurations call.
    pub(super) answers: Vec<Answer>,
}

/// An answer to a GET, which sends no review.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The path.
    pub(super) path: String,
    /// HTTP status, or why there is none.
    pub(super) status: Result<u16, String>,
    /// The beginning of the body.
    pub(super) body: String,
}
