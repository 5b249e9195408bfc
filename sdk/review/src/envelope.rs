//! The envelope of an admission review, with objects left as raw slices of the body.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use kube_core::GroupVersionKind;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The version of `admission.k8s.io` of a review; the response has the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`, with the same members.
    V1beta1,
}

impl ReviewVersion {
    /// Returns the `apiVersion` of the review.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The operation of an admission request. kube's type can be neither copied nor printed, and rules, logs and metrics
/// print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object, or a subresource of it, is updated.
    Update,
    /// The object is deleted, alone or with a collection.
    Delete,
    /// A connection to the object is opened (exec, attach, port-forward, proxy).
    Connect,
}

impl Operation {
    /// Returns the name that Kubernetes uses on the wire and in webhook rules, such as `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A resource with its group and version. Of kube's type, one that was received never equals one that was built,
/// because it compares a private member that deserializing leaves empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Resource, in plural lower case.
    pub resource: String,
}

/// The user who makes the request, as the API server authenticated it. The type of k8s-openapi does not decode a null
/// list in `extra`, which Go writes for an empty one, and has an `Option` for each member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name of the user, such as `system:serviceaccount:ns:name`.
    pub username: String,
    /// Identifier that distinguishes users of the same name over time; may be empty.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Further information from the authenticator.
    #[serde(deserialize_with = "lists_or_nulls")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Go writes a list without elements as null, where nothing leaves it out.
fn lists_or_nulls<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let lists = BTreeMap::<String, Option<Vec<String>>>::deserialize(from)?;
    Ok(lists.into_iter().map(|(key, list)| (key, list.unwrap_or_default())).collect())
}

/// The request of an admission review. Objects are raw slices of the body.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Request<'a> {
    /// UID of the review; the response must repeat it.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// Kind of the object in this review.
    pub kind: GroupVersionKind,
    /// Resource that the webhook's rule matched.
    pub resource: GroupVersionResource,
    /// Subresource, such as `status`; empty for the object itself.
    #[serde(default, borrow)]
    pub sub_resource: Cow<'a, str>,
    /// Kind of the object as the client sent it: another than `kind` where the API server converted it for the webhook.
    pub request_kind: Option<GroupVersionKind>,
    /// Resource that the client requested; it may be another version of the matched one.
    pub request_resource: Option<GroupVersionResource>,
    /// Name of the object; empty while the API server still has to make one from `generateName`.
    #[serde(default, borrow)]
    pub name: Cow<'a, str>,
    /// Namespace of the object; empty for cluster-wide kinds.
    #[serde(default, borrow)]
    pub namespace: Cow<'a, str>,
    /// Operation of the request.
    pub operation: Operation,
    /// User who makes the request.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The new object; `None` on DELETE.
    #[serde(default, borrow)]
    pub object: Option<&'a RawValue>,
    /// The stored object; `None` on CREATE and CONNECT.
    #[serde(default, borrow)]
    pub old_object: Option<&'a RawValue>,
    /// Whether the request is a dry run, so that nothing will be stored.
    pub dry_run: Option<bool>,
    /// `CreateOptions`, `UpdateOptions`, `DeleteOptions` of the request.
    #[serde(default, borrow)]
    pub options: Option<&'a RawValue>,
}

/// An admission review that was received.
#[derive(Clone, Debug)]
pub struct Review<'a> {
    /// Version of the review.
    pub version: ReviewVersion,
    /// The request.
    pub request: Request<'a>,
}

/// A body that is not an admission review with a request. Answer with HTTP 400: there is no `uid` to answer to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// The body is not JSON, or a member of the envelope has another type.
    #[error("body is not an admission review: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another kind of object.
    #[error("apiVersion and kind are {api_version} {kind}; send admission.k8s.io/v1 AdmissionReview")]
    Kind {
        /// The `apiVersion` of the body.
        api_version: String,
        /// The `kind` of the body.
        kind: String,
    },
    /// An empty `request.uid`, which could not be repeated in the answer.
    #[error("request.uid is empty; send the uid that the response must repeat")]
    NoUid,
}

impl<'a> Review<'a> {
    /// Parses the envelope, in time proportional to the body. Decodes none of the objects in it.
    pub fn parse(body: &'a [u8]) -> Result<Self, EnvelopeError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", bound(deserialize = "R: Deserialize<'de>"))]
        struct Envelope<'a, R> {
            #[serde(default, borrow)]
            api_version: Cow<'a, str>,
            #[serde(default, borrow)]
            kind: Cow<'a, str>,
            request: R,
        }
        let Envelope { api_version, kind, request } = match serde_json::from_slice::<Envelope<'a, Request<'a>>>(body) {
            Ok(envelope) => envelope,
            // A body of another kind has another request or none, and that is worth its own message.
            Err(error) => match serde_json::from_slice::<Envelope<'a, Option<IgnoredAny>>>(body) {
                Ok(other) if version(&other.api_version, &other.kind).is_none() => {
                    return Err(other_kind(other.api_version, other.kind));
                }
                _ => return Err(error.into()),
            },
        };
        let Some(version) = version(&api_version, &kind) else { return Err(other_kind(api_version, kind)) };
        if request.uid.is_empty() {
            return Err(EnvelopeError::NoUid);
        }
        Ok(Self { version, request })
    }
}

fn version(api_version: &str, kind: &str) -> Option<ReviewVersion> {
    match (api_version, kind) {
        ("admission.k8s.io/v1", "AdmissionReview") => Some(ReviewVersion::V1),
        ("admission.k8s.io/v1beta1", "AdmissionReview") => Some(ReviewVersion::V1beta1),
        _ => None,
    }
}

fn other_kind(api_version: Cow<'_, str>, kind: Cow<'_, str>) -> EnvelopeError {
    EnvelopeError::Kind { api_version: api_version.into_owned(), kind: kind.into_owned() }
}
