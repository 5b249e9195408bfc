//! Conversion webhooks: one kind in several versions.
//!
//! One version is the hub. Every other version has two functions, one to the hub and one back; from them objects go
//! from any version to any other. The functions are total: they say what a version means in the other's words, and
//! cannot refuse. Metadata is not their business, and what one version cannot express is carried along and comes back
//! ([`portcullis_convert`] says how).
//!
//! Register it beside the admission webhooks. From the one value come the route (`/convert/<plural>`) and the CRD's
//! conversion stanza, and the operator refuses to start or to generate when a version of the CRD has no functions.
//!
//! ```
//! use portcullis::conversion::Convert;
//! use portcullis::webhooks::Webhooks;
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
//! # Ok::<(), portcullis::webhooks::RegistrationError>(())
//! ```
//!
//! # What can be relied on
//!
//! The API server converts whenever an object is asked for in another version than the one in which it is stored, and
//! no policy lets it go on without an answer. So an answer is given whatever is stored: an object that does not read as
//! its own version, or at which a function panics, goes over as far as it goes, with an annotation ([`PROBLEM`]), a log
//! line and a count that say what is wrong, and without a trace of its values. It hides no others, and it can be
//! mended, deleted and collected like them. [`Convert::fail_on_bad_objects`] is for those who want it otherwise.
//!
//! Small reviews are answered where they are read. Large ones, and those of slow functions, are converted on other
//! threads, as many as there are cores for all lists together, and come back in their order. Bodies beyond
//! [`Convert::body_limit`] are refused with 413; what all conversions under way may take together is about 512 MiB, and
//! what does not fit is sent away with 429 and comes again. Time is what the API server grants, 30 s.
//!
//! Objects stay stored in the version in which they were written last. Before a version is removed from the CRD, run
//! the operator's `migrate-storage`.

mod call;
mod cover;
mod pool;
mod record;

use std::fmt;
use std::sync::Arc;

use portcullis_convert::Hub;
pub use portcullis_convert::{ConvertError, Converted, Engine, GraphError, PROBLEM, Problem, STASH, Version};

use crate::metrics::Metrics;
use crate::routes::Endpoint;
use crate::webhooks::{GroupVersionKind, RegistrationError, Webhooks, check_path};

pub(crate) use cover::convertible;

/// Bytes that one review may have unless said otherwise.
const BODY: usize = 128 * 1024 * 1024;

/// The conversion of one kind: its hub version `H`, and the functions of its other versions.
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
    /// A kind whose hub is this version: the one that can say most, commonly the newest.
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

    /// Adds another version. The functions see objects without `metadata.managedFields`, and what they do to metadata
    /// is ignored. One that panics makes the object a bad one.
    pub fn spoke<S: Version>(
        mut self,
        to_hub: impl Fn(S) -> H + Send + Sync + 'static,
        from_hub: impl Fn(H) -> S + Send + Sync + 'static,
    ) -> Self {
        self.hub = self.hub.spoke(to_hub, from_hub);
        self
    }

    /// Another name than the plural: it shows up in logs and metrics, and in the path `/convert/<name>`.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Serves at another path than the one made from the name.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.settings.path = Some(path.into());
        self
    }

    /// Bytes that one review may have; 128 MiB unless said. The API server asks for whole lists at once where it lists
    /// without a limit, as controllers do.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body = bytes;
        self
    }

    /// Fails a whole review for one bad object, with its index, namespace, name and the path of what is wrong.
    ///
    /// Choose this only where a half-converted object does more harm than none: lists and watches of the kind fail as
    /// long as there is a bad object, and with them garbage collection and the deletion of namespaces. Unless this is
    /// said, a bad object goes over as far as it goes, with an annotation ([`PROBLEM`]), a log line and a count that
    /// say what is wrong.
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
    /// Where it is served.
    pub path: String,
    /// What converts.
    pub engine: Engine,
}

/// What is kept of a registration.
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

/// What is served at a path.
type Served = (String, Arc<dyn Endpoint>);

impl Webhooks {
    /// Adds the conversion of a kind.
    pub fn convert<H: Version>(mut self, convert: Convert<H>) -> Self {
        let Convert { hub, settings } = convert;
        self.conversions.push(Registered { settings, engine: hub.build().map_err(Arc::new) });
        self
    }

    /// The conversions, in the order of registration.
    ///
    /// # Errors
    /// When they could not be served as they are: two types of one version, a type of another kind, or a path that
    /// another webhook has.
    pub fn conversions(&self) -> Result<Vec<Conversion>, RegistrationError> {
        let mut paths: Vec<_> = self.manifests()?.into_iter().map(|manifest| manifest.path).collect();
        let mut conversions = Vec::new();
        for registered in &self.conversions {
            let conversion = registered.check()?;
            if paths.contains(&conversion.path) {
                return Err(RegistrationError::Path(conversion.path));
            }
            paths.push(conversion.path.clone());
            conversions.push(conversion);
        }
        Ok(conversions)
    }

    /// Whether objects of this kind are converted here.
    pub(crate) fn converts(&self, kind: &GroupVersionKind) -> bool {
        let mut settings = self.conversions.iter().map(|registered| &registered.settings);
        settings.any(|converted| (&converted.group, &converted.kind) == (&kind.group, &kind.kind))
    }

    /// What is served for them, each with its path.
    pub(crate) fn conversion_endpoints(&self, metrics: &Metrics) -> Result<Vec<Served>, RegistrationError> {
        let largest = self.conversions.iter().map(|registered| registered.settings.body).max().unwrap_or_default();
        let shared = call::Shared::new(largest);
        let endpoint = |(conversion, registered): (Conversion, &Registered)| {
            let endpoint = call::ConversionCalls::new(conversion.engine, &registered.settings, metrics, shared.clone());
            (conversion.path, Arc::new(endpoint) as Arc<dyn Endpoint>)
        };
        Ok(self.conversions()?.into_iter().zip(&self.conversions).map(endpoint).collect())
    }
}
