//! Objects that webhook handlers read in addition to the request.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use kube_core::GroupVersionKind;
use serde_json::Value;

use crate::Access;

/// Objects that handlers of a webhook read (`Validate::with_source` of `portcullis-webhook`), such as a `Cache` of
/// `portcullis-controller`. Until it is filled, the webhook answers HTTP 429.
pub trait Source: Debug + Send + Sync {
    /// The kind of its objects.
    fn kind(&self) -> &GroupVersionKind;

    /// The resource of its objects, such as `regions.shop.example`.
    fn resource(&self) -> String;

    /// Whether the first list is complete: before that, an object that is not in it may still exist.
    fn is_filled(&self) -> bool;

    /// Fills it with these objects of its kind and version, and with no others: for rules that are asked without a
    /// cluster.
    ///
    /// # Errors
    /// When one does not decode.
    fn fill(self: Arc<Self>, objects: &[Value]) -> Result<(), serde_json::Error>;

    /// The rights that filling it takes.
    fn access(&self) -> Access {
        Access::default()
    }

    /// The task that keeps it filled in a cluster: a `Filler` of `portcullis-controller`. `None` if something else
    /// fills it.
    fn filler(self: Arc<Self>) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }
}
