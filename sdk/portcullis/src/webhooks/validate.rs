//! Validating webhooks.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_manifest::{Webhook, WebhookKind};
use portcullis_review::{Operation, Request, Verdict};

use super::admit::{AdmissionObject, Admit, Decision, Failure, new_object, old_object, screen};
use super::settings::{Settings, settings};
use super::{Context, manifest};

/// Rules for a kind as one value, for a webhook and for a controller alike: with webhooks off, the controller asks the
/// same validator about what is stored (with [`Context::of_stored`]) and says in the status what admission would have
/// said.
///
/// ```
/// use std::sync::Arc;
/// use portcullis::webhooks::{Context, Validate, Validator, Verdict};
/// # use k8s_openapi::api::core::v1::ConfigMap;
///
/// struct HasData;
///
/// impl Validator<ConfigMap> for HasData {
///     async fn create(&self, new: Arc<ConfigMap>, _: Context) -> Verdict {
///         if new.data.is_some() { Verdict::allow() } else { Verdict::deny("data is empty").code(422) }
///     }
/// }
///
/// let rules = Arc::new(HasData);
/// let webhook = Validate::<ConfigMap>::named("has-data").validator(Arc::clone(&rules));
/// ```
pub trait Validator<K>: Send + Sync + 'static {
    /// The operations that the webhook is registered for. Name `Delete` here when [`delete`](Self::delete) is written.
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    /// Judges a new object. Also what a controller asks about a stored one.
    fn create(&self, new: Arc<K>, context: Context) -> impl Future<Output = Verdict> + Send;

    /// Judges a change; unless written, the new object is judged as if it were created.
    fn update(&self, old: Arc<K>, new: Arc<K>, context: Context) -> impl Future<Output = Verdict> + Send {
        drop(old);
        self.create(new, context)
    }

    /// Judges a deletion; unless written, it is allowed.
    fn delete(&self, old: Arc<K>, context: Context) -> impl Future<Output = Verdict> + Send {
        drop((old, context));
        std::future::ready(Verdict::allow())
    }
}

type OfOne<K> = Box<dyn Fn(Arc<K>, Context) -> BoxFuture<'static, Verdict> + Send + Sync>;
type OfTwo<K> = Box<dyn Fn(Arc<K>, Arc<K>, Context) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// A validating webhook for the kind `K`. It is called for the operations that have a handler, and for no others.
///
/// An object that is being deleted (its `metadata.deletionTimestamp` is set) never reaches a handler, so that its
/// finalizers can go. One that does not decode as `K` is denied with the path of the field.
#[must_use = "a webhook does nothing until it is registered"]
pub struct Validate<K> {
    settings: Settings,
    create: Option<OfOne<K>>,
    update: Option<OfTwo<K>>,
    delete: Option<OfOne<K>>,
}

impl<K: AdmissionObject> Validate<K> {
    /// A webhook under this name: a DNS label, unique among the validating webhooks of the operator. It is served at
    /// `/validate/{name}` and registered as `{name}.{plural}.{group}`.
    pub fn named(name: impl Into<String>) -> Self {
        Self { settings: Settings::named(name.into()), create: None, update: None, delete: None }
    }

    /// Judges objects that are created.
    pub fn on_create<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<K>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.create = Some(Box::new(move |new, context| handler(new, context).boxed()));
        self
    }

    /// Judges changes; the handler gets the object as it is and as it shall be.
    pub fn on_update<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<K>, Arc<K>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.update = Some(Box::new(move |old, new, context| handler(old, new, context).boxed()));
        self
    }

    /// Judges deletions; the handler gets the object as it is.
    pub fn on_delete<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<K>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.delete = Some(Box::new(move |old, context| handler(old, context).boxed()));
        self
    }

    /// Judges by a [`Validator`], for the operations that it names.
    pub fn validator<V: Validator<K>>(mut self, validator: Arc<V>) -> Self {
        for operation in V::OPERATIONS {
            let validator = Arc::clone(&validator);
            self = match operation {
                Operation::Create => self.on_create(move |new, context| {
                    let validator = Arc::clone(&validator);
                    async move { validator.create(new, context).await }
                }),
                Operation::Update => self.on_update(move |old, new, context| {
                    let validator = Arc::clone(&validator);
                    async move { validator.update(old, new, context).await }
                }),
                Operation::Delete => self.on_delete(move |old, context| {
                    let validator = Arc::clone(&validator);
                    async move { validator.delete(old, context).await }
                }),
                Operation::Connect => self,
            };
        }
        self
    }

    settings!();
}

impl<K: AdmissionObject> Admit for Validate<K> {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn manifest(&self) -> Webhook {
        let operations = manifest::operations(self.create.is_some(), self.update.is_some(), self.delete.is_some());
        manifest::webhook::<K>(WebhookKind::Validating, &self.settings, operations)
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, context: Context) -> BoxFuture<'a, Result<Decision, Failure>> {
        async move {
            if let Some(decided) = screen::<K>(request)? {
                return Ok(decided);
            }
            let verdict = match (request.operation, &self.create, &self.update, &self.delete) {
                (Operation::Create, Some(handler), _, _) => match new_object(request)? {
                    Ok(new) => handler(Arc::new(new), context),
                    Err(unread) => return Ok(unread),
                },
                (Operation::Update, _, Some(handler), _) => match (old_object(request)?, new_object(request)?) {
                    (Ok(old), Ok(new)) => handler(old, Arc::new(new), context),
                    // What the user sent comes first: that is what can be mended.
                    (_, Err(unread)) | (Err(unread), _) => return Ok(unread),
                },
                (Operation::Delete, _, _, Some(handler)) => match old_object(request)? {
                    Ok(old) => handler(old, context),
                    Err(unread) => return Ok(unread),
                },
                (operation, ..) => return Err(Failure::NoHandler(operation.to_string())),
            };
            Ok(Decision::by_handler(verdict.await))
        }
        .boxed()
    }
}

impl<K> fmt::Debug for Validate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validate").field("settings", &self.settings).finish_non_exhaustive()
    }
}
