//! Mutating webhooks.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_manifest::{Webhook, WebhookKind};
use portcullis_review::{Operation, PatchError, Request, Verdict, edit};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::admit::{AdmissionObject, Admit, Decision, Failure, new_object, old_object, screen};
use super::settings::{Settings, settings};
use super::{Context, manifest};

/// What a mutating handler returns: the object as it was, or an edited one, or a denial.
///
/// ```
/// use portcullis::webhooks::{Mutation, Verdict};
/// # use k8s_openapi::api::core::v1::ConfigMap;
///
/// let nothing = Mutation::<ConfigMap>::unchanged();
/// let edited = Mutation::modified(ConfigMap::default()).warn("data was sorted");
/// let refused: Mutation<ConfigMap> = Verdict::deny("data is too big").code(413).into();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a mutation that is not returned changes nothing"]
pub struct Mutation<K> {
    object: Option<K>,
    verdict: Verdict,
}

impl<K> Mutation<K> {
    /// Allowed as it is.
    pub fn unchanged() -> Self {
        Verdict::allow().into()
    }

    /// Allowed with these edits. Return the object that the handler got, edited: members that `K` does not know stay
    /// in the real object, and what is equal before and after makes no patch.
    pub fn modified(object: K) -> Self {
        Self { object: Some(object), verdict: Verdict::allow() }
    }

    /// Refused, with code 400; for more make a [`Verdict`] and turn it into a mutation.
    pub fn deny(message: impl Into<String>) -> Self {
        Verdict::deny(message).into()
    }

    /// Tells the user something beside; see [`Verdict::warn`].
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.verdict = self.verdict.warn(warning);
        self
    }

    /// Adds an annotation to the audit event; see [`Verdict::audit`].
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.verdict = self.verdict.audit(key, value);
        self
    }

    /// The edited object, if it was edited.
    pub fn object(&self) -> Option<&K> {
        self.object.as_ref()
    }

    /// The verdict that goes with it.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

impl<K> From<Verdict> for Mutation<K> {
    fn from(verdict: Verdict) -> Self {
        Self { object: None, verdict }
    }
}

type OnCreate<K> = Box<dyn Fn(K, Context) -> BoxFuture<'static, Mutation<K>> + Send + Sync>;
type OnUpdate<K> = Box<dyn Fn(Arc<K>, K, Context) -> BoxFuture<'static, Mutation<K>> + Send + Sync>;
type OnDelete<K> = Box<dyn Fn(Arc<K>, Context) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// A mutating webhook for the kind `K`. It is called for the operations that have a handler, and for no others.
///
/// Handlers edit the typed object. What they changed is carried over to the object as the API server holds it, so that
/// members unknown to `K` survive and defaults that only `K` writes stay out of it. Keep handlers idempotent: the API
/// server may call them again on their own result.
///
/// As with [`Validate`](super::Validate), objects that are being deleted never reach a handler.
#[must_use = "a webhook does nothing until it is registered"]
pub struct Mutate<K> {
    settings: Settings,
    create: Option<OnCreate<K>>,
    update: Option<OnUpdate<K>>,
    delete: Option<OnDelete<K>>,
}

impl<K: AdmissionObject + Serialize + Clone> Mutate<K> {
    /// A webhook under this name: a DNS label, unique among the mutating webhooks of the operator. It is served at
    /// `/mutate/{name}` and registered as `{name}.{plural}.{group}`.
    pub fn named(name: impl Into<String>) -> Self {
        Self { settings: Settings::named(name.into()), create: None, update: None, delete: None }
    }

    /// Edits objects that are created.
    pub fn on_create<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(K, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Mutation<K>> + Send + 'static,
    {
        self.create = Some(Box::new(move |new, context| handler(new, context).boxed()));
        self
    }

    /// Edits objects that are changed; the handler gets the object as it is and as it shall be.
    pub fn on_update<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<K>, K, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Mutation<K>> + Send + 'static,
    {
        self.update = Some(Box::new(move |old, new, context| handler(old, new, context).boxed()));
        self
    }

    /// Sees deletions, and may refuse them. There is no object left to edit, so the handler returns a [`Verdict`].
    pub fn on_delete<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<K>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.delete = Some(Box::new(move |old, context| handler(old, context).boxed()));
        self
    }

    settings!();
}

impl<K: AdmissionObject + Serialize + Clone> Admit for Mutate<K> {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn manifest(&self) -> Webhook {
        let operations = manifest::operations(self.create.is_some(), self.update.is_some(), self.delete.is_some());
        manifest::webhook::<K>(WebhookKind::Mutating, &self.settings, operations)
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, context: Context) -> BoxFuture<'a, Result<Decision, Failure>> {
        async move {
            if let Some(decided) = screen::<K>(request)? {
                return Ok(decided);
            }
            let (before, mutation) = match (request.operation, &self.create, &self.update, &self.delete) {
                (Operation::Create, Some(handler), _, _) => match new_object::<K>(request)? {
                    Ok(new) => (new.clone(), handler(new, context)),
                    Err(unread) => return Ok(unread),
                },
                (Operation::Update, _, Some(handler), _) => match (old_object(request)?, new_object::<K>(request)?) {
                    (Ok(old), Ok(new)) => (new.clone(), handler(old, new, context)),
                    (_, Err(unread)) | (Err(unread), _) => return Ok(unread),
                },
                (Operation::Delete, _, _, Some(handler)) => match old_object(request)? {
                    Ok(old) => return Ok(Decision::by_handler(handler(old, context).await)),
                    Err(unread) => return Ok(unread),
                },
                (operation, ..) => return Err(Failure::NoHandler(operation.to_string())),
            };
            let Mutation { object, verdict } = mutation.await;
            let mut decision = Decision::by_handler(verdict);
            if let (Some(raw), Some(after)) = (request.object, object) {
                decision.patch = patch(raw, &before, &after)?;
            }
            Ok(decision)
        }
        .boxed()
    }
}

/// The patch for what a handler did to a typed object.
fn patch<K: AdmissionObject + Serialize>(
    raw: &RawValue,
    before: &K,
    after: &K,
) -> Result<Option<portcullis_review::Patch>, Failure> {
    let written = |object: &K| serde_json::to_value(object).map_err(|error| Failure::Patch(PatchError::Write(error)));
    let after = written(after)?;
    let Some(edited) = edit(raw, &written(before)?, &after)? else { return Ok(None) };
    // Read back as the API server's next caller will: a type with aliases or custom encodings can write something that
    // it does not read, and that must be an error here and not in the store.
    let stored = K::deserialize(&edited.object).map_err(|error| Failure::Unstable(error.to_string()))?;
    let stored: Value = written(&stored)?;
    if stored != after {
        return Err(Failure::Unstable("what was read back is another object".into()));
    }
    Ok(Some(edited.patch))
}

impl<K> fmt::Debug for Mutate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutate").field("settings", &self.settings).finish_non_exhaustive()
    }
}
