//! One version of a kind with its type erased: how its objects are read, written and turned into another version's.

use std::any::Any;

use kube_core::ObjectMeta;
use portcullis_review::{BoxError, DecodeError, IntoResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fill::Filled;
use crate::members;
use crate::pieces::Pieces;
use crate::problem::Problem;
use crate::trace::Trace;
use crate::watch::Notice;

/// A type for one version of a kind: every type that derives kube's `CustomResource`, and any other resource type that
/// serializes and deserializes.
pub trait Version:
    kube_core::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<V> Version for V where
    V: kube_core::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// An object of some [`Version`].
pub(crate) trait Object: Any + Send {
    /// Appends the members other than `apiVersion`, `kind` and `metadata`, separated by commas.
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()>;
    /// Adds the content of the same members.
    fn trace(&self, trace: &mut Trace) -> serde_json::Result<()>;
    fn metadata(&mut self) -> &mut ObjectMeta;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<V: Version> Object for V {
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        members::write(self, out)
    }

    fn trace(&self, trace: &mut Trace) -> serde_json::Result<()> {
        members::trace(self, trace)
    }

    fn metadata(&mut self) -> &mut ObjectMeta {
        self.meta_mut()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// A version by its name, and how its objects are read.
pub(crate) struct Codec {
    pub(crate) version: String,
    pub(crate) api_version: String,
    read: fn(Pieces<'_>, &Notice) -> serde_json::Result<Box<dyn Object>>,
    explain: fn(&str) -> Option<DecodeError>,
    /// Reads an object that lacks fields.
    pub(crate) fill: fn(Filled<'_>) -> serde_json::Result<Box<dyn Object>>,
}

impl Codec {
    pub(crate) fn of<V: Version>() -> Self {
        Self {
            version: V::version(&()).into_owned(),
            api_version: V::api_version(&()).into_owned(),
            read: read::<V>,
            explain: explain::<V>,
            fill: |source| Ok(Box::new(V::deserialize(source)?)),
        }
    }

    /// Reads a whole object.
    pub(crate) fn read(&self, source: Pieces<'_>, notice: &Notice) -> serde_json::Result<Box<dyn Object>> {
        (self.read)(source, notice)
    }

    /// The reason why an object does not decode.
    pub(crate) fn explain(&self, source: Pieces<'_>) -> Problem {
        match (self.explain)(&source.to_json()) {
            Some(error) => Problem::reading(&self.version, &error),
            None => Problem::whole(format!("does not read as {}", self.version)),
        }
    }
}

fn read<V: Version>(source: Pieces<'_>, notice: &Notice) -> serde_json::Result<Box<dyn Object>> {
    Ok(Box::new(V::deserialize(source.watched(notice))?))
}

fn explain<V: Version>(json: &str) -> Option<DecodeError> {
    portcullis_review::decode::<V>(json).err()
}

/// A function from version `A` to version `B`: `fn(A) -> B`, or `fn(A) -> Result<B, E>` with any error. After an error
/// the object is returned unchanged, with the annotation [`PROBLEM`](crate::PROBLEM).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not convert `{A}` to `{B}`",
    note = "a converter is a function or a closure from `{A}` to `{B}`, or to a `Result` of it"
)]
pub trait ConverterFn<A, B>: Fn(A) -> Self::Returned + Send + Sync + 'static {
    /// `B`, or a `Result` of it.
    type Returned: IntoResult<B>;
}

impl<A, B, F, R> ConverterFn<A, B> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    R: IntoResult<B>,
{
    type Returned = R;
}

/// A converter with its types erased. Handed another type than its own it fails, which the graph rules out.
pub(crate) type Converter = Box<dyn Fn(Box<dyn Object>) -> Result<Box<dyn Object>, BoxError> + Send + Sync>;

pub(crate) fn converter<A: Version, B: Version>(converter: impl ConverterFn<A, B>) -> Converter {
    Box::new(move |object| {
        let object: Box<A> = object.into_any().downcast().map_err(|_| "object of another version's type")?;
        Ok(Box::new(IntoResult::<B>::into_result(converter(*object))?))
    })
}
