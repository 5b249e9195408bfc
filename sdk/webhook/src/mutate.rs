//! Mutating webhooks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::DynamicObject;
use portcullis_manifest::{ReinvocationPolicy, WebhookKind};
use portcullis_review::{Operation, Patch, PatchError, Request, edit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::admit::{Admit, decoded, new_object, text};
use super::decision::{Decision, Failure};
use super::handler::{Handlers, handlers, register_methods};
use super::settings::{Settings, settings};
use super::target::{AdmissionObject, Subject, Target};
use super::{Context, Mutation, Mutator};

/// A mutating webhook. The API server calls it only for operations that have a handler.
///
/// `T` is the type that handlers get: the kind itself ([`new`](Self::new)), the object of a subresource
/// ([`subresource_of`](Self::subresource_of)), or an untyped object ([`dynamic`](Self::dynamic)).
///
/// Handlers edit the typed object. Their changes are applied to the object as the API server sent it, so that fields
/// unknown to `T` are kept and defaults that only `T` writes are not added. Keep handlers idempotent: the API server
/// may call them again on their own result. Use ordered sets (`BTreeSet`): a `HashSet` serializes in another order each
/// time, which counts as an edit.
///
/// As with [`Validate`](super::Validate), an update of an object that is being deleted reaches no handler, and gets no
/// patch, if it changes only `metadata` or `status`.
///
/// A handler returns a [`Mutation`], or a `Result` of one with any error, which is handled as for
/// [`Validate`](super::Validate). Handlers that share data are the methods of a [`Mutator`]. Each operation has one
/// handler; two are [`RegistrationError::DuplicateHandler`](super::RegistrationError::DuplicateHandler).
#[must_use = "a webhook does nothing until it is registered"]
pub struct Mutate<T> {
    settings: Settings,
    handlers: Handlers<T, T, Mutation<T>>,
    /// Whether the last object was edited.
    edits: AtomicBool,
}

impl<K: AdmissionObject + Serialize + Clone> Mutate<K> {
    /// Creates a webhook for the kind `K`. The name is a DNS label, unique among the mutating webhooks of the operator.
    /// The webhook is served at `/mutate/{name}` and registered as `{name}.{plural}.{group}`, unless
    /// [`path`](Self::path) and [`full_name`](Self::full_name) give others.
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_subject(name, Subject::objects::<K>())
    }
}

impl Mutate<DynamicObject> {
    /// Creates a webhook for untyped objects of one kind or several; [`Context::kind`] says which. It is registered as
    /// `{name}.{plural}.{group}`, or as `{name}.dynamic.portcullis.dev` when the target is more than one resource.
    pub fn dynamic(name: impl Into<String>, target: impl Into<Target>) -> Self {
        Self::with_subject(name, Subject::dynamic(target.into()))
    }
}

impl<T: DeserializeOwned + Serialize + Clone + Send + Sync + 'static> Mutate<T> {
    /// Creates a webhook for a subresource of the kind `K`, where `T` is the type of its objects; see
    /// [`Validate::subresource_of`](super::Validate::subresource_of).
    pub fn subresource_of<K: AdmissionObject>(name: impl Into<String>, subresource: &str) -> Self {
        Self::with_subject(name, Subject::subresource::<K>(subresource))
    }

    fn with_subject(name: impl Into<String>, subject: Subject) -> Self {
        let settings = Settings::new(WebhookKind::Mutating, name.into(), subject);
        Self { settings, handlers: Handlers::default(), edits: AtomicBool::default() }
    }

    handlers!(T, Mutation<T>);

    /// Registers the methods of a [`Mutator`] for its operations.
    pub fn mutator<M: Mutator<T>>(mut self, mutator: Arc<M>) -> Self {
        register_methods!(self, mutator: M);
        self
    }
}

impl<T> Mutate<T> {
    /// Sets whether the API server calls this webhook again when a later one changed the object (default: `IfNeeded`).
    pub fn reinvocation_policy(mut self, policy: ReinvocationPolicy) -> Self {
        self.settings.entry.reinvocation_policy = policy;
        self
    }

    settings!();
}

impl<T: DeserializeOwned + Serialize + Clone + Send + Sync + 'static> Admit for Mutate<T> {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn call_handler<'a>(
        &'a self,
        request: &'a Request<'a>,
        context: Context,
    ) -> BoxFuture<'a, Result<Decision, Failure>> {
        self.mutate(request, context).boxed()
    }
}

impl<T: DeserializeOwned + Serialize + Clone + Send + Sync + 'static> Mutate<T> {
    async fn mutate(&self, request: &Request<'_>, context: Context) -> Result<Decision, Failure> {
        let mut before = None;
        let new = || {
            let new = new_object::<T>(request, &self.settings)?;
            // The handler consumes the object. A webhook that edited the last one will mostly edit this one too, and to
            // write it now costs less than to decode it again for the patch; where it edits none, neither is needed.
            if self.edits.load(Ordering::Relaxed) {
                before = written(&new, text(request, request.object)?).ok();
            }
            Ok(new)
        };
        let Mutation { object, verdict } = self.handlers.call(request, &self.settings, context, new).await?;
        if request.operation != Operation::Delete {
            self.edits.store(object.is_some(), Ordering::Relaxed);
        }
        let mut decision = Decision::by_handler(verdict);
        if let Some(after) = object {
            decision.patch = patch(text(request, request.object)?, before, &after, &self.settings)?;
        }
        Ok(decision)
    }
}

/// Writes an object; `like` is about as long.
fn written<T: Serialize>(object: &T, like: &str) -> Result<String, Failure> {
    let mut text = Vec::with_capacity(like.len());
    serde_json::to_writer(&mut text, object).map_err(PatchError::Write)?;
    String::from_utf8(text).map_err(|error| Failure::Unstable(error.to_string()))
}

/// Sorts every array, so that sets compare equal in any order.
fn in_order(mut value: Value) -> Value {
    match &mut value {
        Value::Array(list) => {
            for element in list.iter_mut() {
                *element = in_order(element.take());
            }
            list.sort_by_cached_key(Value::to_string);
        }
        Value::Object(members) => members.values_mut().for_each(|member| *member = in_order(member.take())),
        _ => {}
    }
    value
}

/// Makes the patch for the edits of a handler. `before` is the object as its type serialized it before the handler ran,
/// if that is known.
fn patch<T: DeserializeOwned + Serialize>(
    raw: &str,
    before: Option<String>,
    after: &T,
    settings: &Settings,
) -> Result<Option<Patch>, Failure> {
    // The error has the path alone: it goes to the log, and serde's message may repeat a value of the object.
    let read = |text: &str| {
        decoded::<T>(text, settings.managed_fields)
            .map_err(|error| Failure::Unstable(format!("it does not decode at {}", error.path)))
    };
    let before = match before {
        Some(before) => before,
        None => written(&read(raw)?, raw)?,
    };
    let after = written(after, raw)?;
    if before == after {
        return Ok(None);
    }
    let edited = edit(raw, &before, &after)?;
    // Decode the result again, as the next reader will. A type may serialize what it does not read back (it omits a
    // number that is 0, and reads an omitted one as 5); such an object must fail here, and not be stored. If the object
    // was exactly as the type serializes it, the new serialization is the stored object.
    let stored = match &edited {
        None => before,
        Some(edited) if edited.as_written => written(&read(&after)?, raw)?,
        Some(edited) => written(&read(&edited.object()?)?, raw)?,
    };
    // Texts are compared first, because it is cheaper. Types with sets or hash maps serialize in any order; for these
    // the values decide.
    let unstable = |error: serde_json::Error| Failure::Unstable(error.to_string());
    let value = |text: &str| serde_json::from_str(text).map(in_order).map_err(unstable);
    if stored != after && value(&stored)? != value(&after)? {
        return Err(Failure::Unstable("what was read back is another object".into()));
    }
    Ok(edited.map(|edited| edited.patch))
}

impl<T> fmt::Debug for Mutate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutate").field("settings", &self.settings).finish_non_exhaustive()
    }
}
