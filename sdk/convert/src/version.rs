//! One version of a kind with its type erased: how its objects are read, written and turned into another version's.

use std::any::Any;

use kube_core::ObjectMeta;
use portcullis_review::DecodeError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::members;
use crate::problem::Problem;
use crate::source::Source;
use crate::trace::Trace;
use crate::watch::Notice;

/// A type that stands for one version of a kind: whatever kube's `CustomResource` derive makes, and any other resource
/// type that can be read and written.
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
    /// Adds what the same members say.
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
    read: fn(Source<'_>, &Notice) -> serde_json::Result<Box<dyn Object>>,
    explain: fn(&str) -> Option<DecodeError>,
}

impl Codec {
    pub(crate) fn of<V: Version>() -> Self {
        Self {
            version: V::version(&()).into_owned(),
            api_version: V::api_version(&()).into_owned(),
            read: read::<V>,
            explain: explain::<V>,
        }
    }

    /// Reads a whole object.
    pub(crate) fn read(&self, source: Source<'_>, notice: &Notice) -> serde_json::Result<Box<dyn Object>> {
        (self.read)(source, notice)
    }

    /// Why an object does not read.
    pub(crate) fn explain(&self, source: Source<'_>) -> Problem {
        match (self.explain)(&source.to_json()) {
            Some(error) => Problem::reading(&self.version, &error),
            None => Problem::whole(format!("does not read as {}", self.version)),
        }
    }
}

fn read<V: Version>(source: Source<'_>, notice: &Notice) -> serde_json::Result<Box<dyn Object>> {
    Ok(Box::new(V::deserialize(source.watched(notice))?))
}

fn explain<V: Version>(json: &str) -> Option<DecodeError> {
    portcullis_review::decode::<V>(json).err()
}

/// A converter with its types erased. None when it is handed another type than its own, which the graph rules out.
pub(crate) type Converter = Box<dyn Fn(Box<dyn Object>) -> Option<Box<dyn Object>> + Send + Sync>;

pub(crate) fn converter<A: Version, B: Version>(convert: impl Fn(A) -> B + Send + Sync + 'static) -> Converter {
    Box::new(move |object| {
        let object: Box<A> = object.into_any().downcast().ok()?;
        Some(Box::new(convert(*object)))
    })
}
