//! Conversion webhooks: one kind in several versions.
//!
//! One version is the hub. Every other version is a spoke with two converters, one to the hub and one back; with them
//! every version converts to every other. Converters do not validate; one that cannot convert an object returns an
//! error ([`ConverterFn`]). They need not handle metadata or data that one version cannot express: the engine keeps
//! both ([`portcullis_convert`] explains how).
//!
//! Register the conversion beside the admission webhooks. The route (`/convert/<plural>`) and the CRD's conversion
//! stanza are made from it, and the operator refuses to start or to generate when a version of the CRD has no
//! converters.
//!
//! ```
//! use portcullis_webhook::conversion::Convert;
//! use portcullis_webhook::Webhooks;
//!
//! mod v1 {
//!     use kube::CustomResource;
//!     use schemars::JsonSchema;
//!     use serde::{Deserialize, Serialize};
//!
//!     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//!     #[kube(group = "demo.example", version = "v1", kind = "Person", plural = "people", namespaced)]
//!     pub struct PersonSpec {
//!         pub name: String,
//!     }
//! }
//!
//! mod v2 {
//!     # use kube::CustomResource;
//!     # use schemars::JsonSchema;
//!     # use serde::{Deserialize, Serialize};
//!     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//!     #[kube(group = "demo.example", version = "v2", kind = "Person", plural = "people", namespaced)]
//!     pub struct PersonSpec {
//!         pub first_name: String,
//!         pub last_name: String,
//!     }
//! }
//!
//! fn v1_to_v2(old: v1::Person) -> v2::Person {
//!     let (first, last) = old.spec.name.split_once(' ').unwrap_or((&old.spec.name, ""));
//!     let spec = v2::PersonSpec { first_name: first.into(), last_name: last.into() };
//!     v2::Person { metadata: old.metadata, spec }
//! }
//!
//! fn v2_to_v1(new: v2::Person) -> v1::Person {
//!     let name = format!("{} {}", new.spec.first_name, new.spec.last_name).trim_end().into();
//!     v1::Person { metadata: new.metadata, spec: v1::PersonSpec { name } }
//! }
//!
//! let webhooks = Webhooks::new().convert(Convert::<v2::Person>::hub().spoke(v1_to_v2, v2_to_v1));
//! assert_eq!(webhooks.routes()?.paths(), ["/convert/people"]);
//! assert_eq!(webhooks.conversions()?[0].crd, "people.demo.example");
//! # Ok::<(), portcullis_webhook::RegistrationError>(())
//! ```
//!
//! # Guarantees
//!
//! The API server converts whenever an object is requested in another version than the one in which it is stored, and
//! conversion webhooks have no failure policy. So every object gets an answer: one that does not decode as its own
//! version, or whose converter fails or panics, is converted as far as possible, and an annotation ([`PROBLEM`]), a log
//! line and a metric say what is wrong, without its values (the log line also has the text of the converter's error).
//! It breaks no lists, and can be fixed, deleted and garbage-collected. [`Convert::fail_on_bad_objects`] changes this.
//!
//! An object whose annotations have no room for what a version lacks is converted without it, and gets the label
//! [`INCOMPLETE`]. An operator refuses to have it stored so: it follows its CRDs to know in which version objects are
//! stored. A server of your own does when it sets that in the engines ([`Webhooks::conversions`],
//! [`Engine::set_storage`]).
//!
//! Small reviews are converted on the thread that reads them. Large ones, and those of slow converters, are converted
//! on other threads, for all lists together as many as there are cores; the order of objects is kept. Bodies larger
//! than [`Convert::body_limit`] are refused with 413. All conversions in flight share about 512 MiB, or three eighths
//! of what the process's memory limit leaves beside 24 MiB ([`Webhooks::memory_limit`]); what exceeds that is answered
//! with 429 and retried. The deadline is the API server's, 30 s.
//!
//! Objects stay stored in the version in which they were written last. Run the operator's `migrate-storage` before
//! removing a version from the CRD.

mod call;
mod pool;
mod record;

use std::fmt;
use std::sync::Arc;

use portcullis_convert::Hub;
pub use portcullis_convert::{
    BoxError, ConvertError, Converted, ConverterFn, Engine, GraphError, INCOMPLETE, IntoResult, PROBLEM, Problem,
    STASH, Version,
};

use crate::memory::Memory;
use crate::routes::Endpoint;
use crate::settings::check_path;
use crate::{GroupVersionKind, RegistrationError, Webhooks};
use portcullis_metrics::Metrics;

/// Default limit of a review's body in bytes.
const BODY: usize = 128 * 1024 * 1024;

/// The conversion of one kind: its hub version `H`, and the converters of its other versions.
#[must_use = "a conversion does nothing until it is registered"]
pub struct Convert<H> {
    hub: Hub<H>,
    settings: Settings,
}

#[derive(Clone, Debug)]
struct Settings {
    group: String,
    kind: String,
    plural: String,
    name: String,
    path: Option<String>,
    body: usize,
    strict: bool,
}

impl<H: Version> Convert<H> {
    /// Creates the conversion of a kind with the hub version `H`: the one that can express most, usually the newest.
    pub fn hub() -> Self {
        let plural = H::plural(&()).into_owned();
        let settings = Settings {
            group: H::group(&()).into_owned(),
            kind: H::kind(&()).into_owned(),
            name: plural.clone(),
            plural,
            path: None,
            body: BODY,
            strict: false,
        };
        Self { hub: Hub::new(), settings }
    }

    /// Adds a version with its converters. They get objects without `metadata.managedFields`, and their changes of
    /// metadata are ignored. When one fails or panics, the object is converted as far as possible and gets the
    /// annotation [`PROBLEM`].
    pub fn spoke<V: Version>(mut self, to_hub: impl ConverterFn<V, H>, from_hub: impl ConverterFn<H, V>) -> Self {
        self.hub = self.hub.spoke(to_hub, from_hub);
        self
    }
}

impl<H> Convert<H> {
    /// Sets the name that logs, metrics and the path `/convert/<name>` have (default: the plural).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Sets the path of the webhook instead of the one made from the name.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.settings.path = Some(path.into());
        self
    }

    /// Sets the maximum size of a review in bytes (default: 128 MiB). The API server sends a whole list at once to a
    /// client that lists without a limit, as controllers do.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body = bytes;
        self
    }

    /// Fails the whole review when one object does not convert; the answer has its index, namespace, name and the path
    /// of the field.
    ///
    /// Use this only where a partly converted object does more harm than none: lists and watches of the kind fail as
    /// long as there is such an object, and with them garbage collection and the deletion of namespaces. By default the
    /// object is converted as far as possible, and an annotation ([`PROBLEM`]), a log line and a metric say what is
    /// wrong. Parts of objects that server-side apply converts lack fields, too, and fail no review.
    pub fn fail_on_bad_objects(mut self) -> Self {
        self.settings.strict = true;
        self
    }
}

impl<H> fmt::Debug for Convert<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Convert").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A registered conversion.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Conversion {
    /// API group of the kind.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// Name of its CRD.
    pub crd: String,
    /// Path that it is served at.
    pub path: String,
    /// Engine that converts the objects.
    pub engine: Engine,
}

/// The stored form of a registration.
#[derive(Clone)]
pub(crate) struct Registered {
    settings: Settings,
    engine: Result<Engine, Arc<GraphError>>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl Registered {
    fn check(&self) -> Result<Conversion, RegistrationError> {
        let Settings { group, kind, plural, name, path, .. } = &self.settings;
        let path = path.clone().unwrap_or_else(|| format!("/convert/{name}"));
        check_path(name, &path)?;
        let engine =
            self.engine.clone().map_err(|source| RegistrationError::Conversion { kind: kind.clone(), source })?;
        Ok(Conversion { group: group.clone(), kind: kind.clone(), crd: format!("{plural}.{group}"), path, engine })
    }
}

/// A path and its endpoint.
type Served = (String, Arc<dyn Endpoint>);

impl Webhooks {
    /// Registers the conversion of a kind.
    pub fn convert<H: Version>(mut self, convert: Convert<H>) -> Self {
        let Convert { hub, settings } = convert;
        self.conversions.push(Registered { settings, engine: hub.build().map_err(Arc::new) });
        self
    }

    /// Returns the conversions, in the order of registration.
    ///
    /// # Errors
    /// When they cannot be served: two types of one version, a type of another kind, or a path of another webhook.
    pub fn conversions(&self) -> Result<Vec<Conversion>, RegistrationError> {
        let mut paths: Vec<_> = self.manifests()?.into_iter().map(|manifest| manifest.path).collect();
        let mut conversions = Vec::new();
        for registered in &self.conversions {
            let conversion = registered.check()?;
            if paths.contains(&conversion.path) {
                return Err(RegistrationError::DuplicatePath(conversion.path));
            }
            paths.push(conversion.path.clone());
            conversions.push(conversion);
        }
        Ok(conversions)
    }

    /// Returns whether a conversion of this kind is registered.
    pub fn converts(&self, kind: &GroupVersionKind) -> bool {
        let mut settings = self.conversions.iter().map(|registered| &registered.settings);
        settings.any(|converted| (&converted.group, &converted.kind) == (&kind.group, &kind.kind))
    }

    /// Makes the endpoint of each conversion, with its path.
    pub(crate) fn conversion_endpoints(
        &self,
        metrics: &Metrics,
        memory: Memory,
    ) -> Result<Vec<Served>, RegistrationError> {
        let largest = self.conversions.iter().map(|registered| registered.settings.body).max().unwrap_or_default();
        let shared = call::Shared::new(largest, memory);
        let endpoint = |(conversion, registered): (Conversion, &Registered)| {
            let endpoint = call::ConversionCalls::new(conversion.engine, &registered.settings, metrics, shared.clone());
            (conversion.path, Arc::new(endpoint) as Arc<dyn Endpoint>)
        };
        Ok(self.conversions()?.into_iter().zip(&self.conversions).map(endpoint).collect())
    }
}
