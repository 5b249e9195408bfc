//! The conversion review on the wire: its envelope, with objects as raw slices of the body, and its answers.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::engine::Converted;
use crate::json::write_string;

/// The version of `apiextensions.k8s.io` of a review; the response has the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `apiextensions.k8s.io/v1`.
    V1,
    /// `apiextensions.k8s.io/v1beta1`, with the same members.
    V1beta1,
}

impl ReviewVersion {
    /// Returns the `apiVersion` of the review.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

/// A conversion review that was received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Review<'a> {
    /// Version of the review.
    pub version: ReviewVersion,
    /// UID of the review; the response must repeat it.
    pub uid: Cow<'a, str>,
    /// Group and version to convert all objects to, such as `demo.example/v2`.
    pub desired_api_version: Cow<'a, str>,
    /// The objects. All are of one kind; their versions may differ.
    pub objects: Vec<&'a RawValue>,
}

/// A body that is not a conversion review with a request. Answer with HTTP 400: there is no `uid` to answer to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// The body is not JSON, or a member of the envelope has another type.
    #[error("body is not a conversion review: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another kind of object.
    #[error("apiVersion and kind are {api_version:?} {kind:?}; send apiextensions.k8s.io/v1 ConversionReview")]
    Kind {
        /// The `apiVersion` of the body.
        api_version: String,
        /// The `kind` of the body.
        kind: String,
    },
    /// An empty or missing `request.uid`, which could not be repeated in the answer.
    #[error("request.uid is empty; send the uid that the response must repeat")]
    NoUid,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a, R> {
    #[serde(default, borrow)]
    api_version: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Cow<'a, str>,
    request: Option<R>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Request<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(rename = "desiredAPIVersion", borrow)]
    desired_api_version: Cow<'a, str>,
    // Go writes a list without elements as null.
    #[serde(borrow, deserialize_with = "objects")]
    objects: Option<Vec<&'a RawValue>>,
}

/// The most objects of a review: with less than a hundred bytes each, a body within the limits could not hold more.
const MOST: usize = 1024 * 1024;

/// The objects, but no more than [`MOST`]: elements of two bytes would take eight times the memory of the body.
fn objects<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<&'de RawValue>>, D::Error> {
    struct Objects;

    impl<'de> Visitor<'de> for Objects {
        type Value = Option<Vec<&'de RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of objects")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
            let mut objects = Vec::new();
            while let Some(object) = elements.next_element()? {
                if objects.len() == MOST {
                    return Err(A::Error::custom(format_args!("more than {MOST} objects")));
                }
                objects.push(object);
            }
            Ok(Some(objects))
        }
    }

    from.deserialize_any(Objects)
}

impl<'a> Review<'a> {
    /// Parses the envelope, in time proportional to the body. Decodes none of the objects in it.
    pub fn parse(body: &'a [u8]) -> Result<Self, EnvelopeError> {
        let read: Result<Envelope<'a, Request<'a>>, _> = serde_json::from_slice(body);
        let envelope = match read {
            Ok(envelope) => envelope,
            // A body of another kind has another request, and that is worth its own message.
            Err(error) => {
                let envelope: Envelope<'a, serde::de::IgnoredAny> = serde_json::from_slice(body)?;
                version(&envelope.api_version, &envelope.kind)?;
                return Err(error.into());
            }
        };
        let version = version(&envelope.api_version, &envelope.kind)?;
        let Request { uid, desired_api_version, objects } = envelope.request.unwrap_or_default();
        if uid.is_empty() {
            return Err(EnvelopeError::NoUid);
        }
        Ok(Self { version, uid, desired_api_version, objects: objects.unwrap_or_default() })
    }

    /// Encodes the response with the converted objects, which must have the number and order of
    /// [`objects`](Self::objects).
    pub fn success(&self, converted: &[Converted]) -> Vec<u8> {
        let length: usize = converted.iter().map(|converted| converted.object.len() + 1).sum();
        let mut out = self.begin(length + 256);
        for (index, converted) in converted.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(converted.object.as_bytes());
        }
        out.extend_from_slice(br#"],"result":{"status":"Success"}}}"#);
        out
    }

    /// Encodes the response of a failed conversion. The user sees only the message.
    pub fn failure(&self, message: &str) -> Vec<u8> {
        let mut out = self.begin(message.len() + 256);
        out.extend_from_slice(br#"],"result":{"status":"Failure","message":"#);
        write_string(&mut out, message);
        out.extend_from_slice(b"}}}");
        out
    }

    /// Everything up to the first object.
    fn begin(&self, capacity: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(capacity);
        out.extend_from_slice(br#"{"apiVersion":""#);
        out.extend_from_slice(self.version.api_version().as_bytes());
        out.extend_from_slice(br#"","kind":"ConversionReview","response":{"uid":"#);
        write_string(&mut out, &self.uid);
        out.extend_from_slice(br#","convertedObjects":["#);
        out
    }
}

fn version(api_version: &str, kind: &str) -> Result<ReviewVersion, EnvelopeError> {
    match (api_version, kind) {
        ("apiextensions.k8s.io/v1", "ConversionReview") => Ok(ReviewVersion::V1),
        ("apiextensions.k8s.io/v1beta1", "ConversionReview") => Ok(ReviewVersion::V1beta1),
        (api_version, kind) => Err(EnvelopeError::Kind { api_version: api_version.into(), kind: kind.into() }),
    }
}
