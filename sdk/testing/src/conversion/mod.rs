//! Laws that converters of a kind must keep, tested on objects generated from its CRD's schemas.
//!
//! ```
//! use kube::CustomResourceExt as _;
//! use kube::core::crd::merge_crds;
//! use portcullis_convert::Hub;
//! use portcullis_testing::conversion::assert_laws;
//!
//! mod v1 {
//!     # use kube::CustomResource; use schemars::JsonSchema; use serde::{Deserialize, Serialize};
//!     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//!     #[kube(group = "demo.example", version = "v1", kind = "Timer", plural = "timers", namespaced)]
//!     pub struct TimerSpec { pub seconds: u32 }
//! }
//! mod v2 {
//!     # use kube::CustomResource; use schemars::JsonSchema; use serde::{Deserialize, Serialize};
//!     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//!     #[kube(group = "demo.example", version = "v2", kind = "Timer", plural = "timers", namespaced)]
//!     pub struct TimerSpec { pub milliseconds: u64 }
//! }
//!
//! let engine = Hub::<v2::Timer>::new()
//!     .spoke::<v1::Timer>(
//!         |old| v2::Timer {
//!             metadata: old.metadata,
//!             spec: v2::TimerSpec { milliseconds: u64::from(old.spec.seconds) * 1000 },
//!         },
//!         |hub| v1::Timer {
//!             metadata: hub.metadata,
//!             spec: v1::TimerSpec { seconds: u32::try_from(hub.spec.milliseconds / 1000).unwrap_or(u32::MAX) },
//!         },
//!     )
//!     .build()?;
//! let crd = merge_crds(vec![v1::Timer::crd(), v2::Timer::crd()], "v2")?;
//! assert_laws(&engine, &crd);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In an operator it is `assert_laws(&webhooks, &crd)`, with the webhooks that it serves.
//!
//! The engine keeps what a version cannot express (the milliseconds, above) beside the object, so losing it breaks no
//! law. A converter breaks a law when it fails or panics, gives two results for one object, or undoes what a user
//! changed in the other version meanwhile; a schema does when it admits what the type does not read.

mod edits;
mod laws;
mod objects;
mod scalars;
mod schema;

use portcullis_convert::Engine;
use portcullis_webhook::Webhooks;
use serde_json::Value;
use serde_json::value::RawValue;

pub use laws::assert_laws;

/// Converts objects from one version to another.
pub trait Converter {
    /// The object in this `apiVersion`.
    ///
    /// # Errors
    /// Why it cannot be converted, or only as far as it goes. Every object that the schema admits can be.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String>;
}

impl Converter for Engine {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let raw = RawValue::from_string(object.to_string()).map_err(|error| error.to_string())?;
        let converted = Self::convert(self, &raw, api_version).map_err(|error| error.to_string())?;
        match converted.problem {
            Some(problem) => {
                let error = problem.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
                Err(format!("only as far as it goes: {problem}{error}"))
            }
            None => serde_json::from_str(&converted.object).map_err(|error| error.to_string()),
        }
    }
}

/// The conversion that is registered for the object's kind.
impl Converter for Webhooks {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let conversions = self.conversions().map_err(|error| error.to_string())?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let conversion = conversions.iter().find(|of| of.group == group && object["kind"] == of.kind.as_str());
        let conversion = conversion.ok_or_else(|| format!("no conversion of {} is registered", object["kind"]))?;
        Converter::convert(&conversion.engine, object, api_version)
    }
}
