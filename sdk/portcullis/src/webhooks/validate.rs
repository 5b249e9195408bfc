//! Validating webhooks.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::DynamicObject;
use portcullis_manifest::{CelRule, Webhook, WebhookKind};
use portcullis_review::{GroupVersionKind, Operation, Request, Verdict};
use serde::de::DeserializeOwned;

use super::admit::{AdmissionObject, Admit, Decision, Failure, exempt, new_object, old_object};
use super::settings::{Settings, settings};
use super::target::{Subject, Target};
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
    /// `Connect` is passed over: connections are judged by [`Validate::on_connect`].
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

/// A validating webhook. It is called for the operations that have a handler, and for no others.
///
/// `T` is what handlers get: the kind itself ([`named`](Self::named)), what is sent to a subresource of it
/// ([`subresource_of`](Self::subresource_of)), or an object without a type of its own ([`dynamic`](Self::dynamic)).
///
/// An update of an object that is being deleted (its stored `metadata.deletionTimestamp` is set) reaches no handler if it
/// changes only `metadata` or `status`, so that finalizers can go whatever the object looks like. The generated
/// configuration exempts it by a match condition, so that they go while the webhook is down as well. An update of
/// anything else is judged like any other; a further deletion is not. So rules about labels, annotations and the status
/// do not hold for an object once it is being deleted.
///
/// An object that does not decode as `T` is denied with the path of the field.
#[must_use = "a webhook does nothing until it is registered"]
pub struct Validate<T> {
    settings: Settings,
    subject: Subject,
    create: Option<OfOne<T>>,
    update: Option<OfTwo<T>>,
    delete: Option<OfOne<T>>,
    connect: Option<OfOne<T>>,
    cel_rules: Vec<CelRule>,
}

impl<K: AdmissionObject> Validate<K> {
    /// A webhook for a kind, under this name: a DNS label, unique among the validating webhooks of the operator. It is
    /// served at `/validate/{name}` and registered as `{name}.{plural}.{group}`.
    pub fn named(name: impl Into<String>) -> Self {
        Self::new(name, Subject::objects::<K>())
    }
}

impl Validate<DynamicObject> {
    /// A webhook for objects without a type of their own, of one kind or many. [`Context::kind`] tells which. It is
    /// registered as `{name}.{plural}.{group}`, and as `{name}.dynamic.portcullis.dev` where the target is more than
    /// one resource.
    pub fn dynamic(name: impl Into<String>, target: impl Into<Target>) -> Self {
        Self::new(name, Subject::dynamic(target.into()))
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Validate<T> {
    /// A webhook for a subresource of the kind `K`, where `T` is what is sent there: `K` itself for `status`,
    /// [`Scale`](super::Scale) for `scale`, and for others whatever type reads it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portcullis::k8s_openapi::api::apps::v1::Deployment;
    /// use portcullis::k8s_openapi::api::core::v1::Pod;
    /// use portcullis::webhooks::{Context, Scale, Validate, Verdict};
    ///
    /// let limit = Validate::<Scale>::subresource_of::<Deployment>("limit", "scale").on_update(
    ///     |_: Arc<Scale>, new: Arc<Scale>, _: Context| async move {
    ///         match new.spec.as_ref().and_then(|spec| spec.replicas) {
    ///             Some(11..) => Verdict::deny("ten replicas are enough").code(422),
    ///             _ => Verdict::allow(),
    ///         }
    ///     },
    /// );
    ///
    /// // A connection has no object but its options; `kubectl exec` sends a PodExecOptions.
    /// #[derive(serde::Deserialize)]
    /// struct PodExecOptions {
    ///     #[serde(default)]
    ///     command: Vec<String>,
    /// }
    /// let no_shells = Validate::<PodExecOptions>::subresource_of::<Pod>("no-shells", "exec").on_connect(
    ///     |options: Arc<PodExecOptions>, _: Context| async move {
    ///         if options.command.iter().any(|word| word.ends_with("sh")) {
    ///             return Verdict::deny("no shells here").code(403);
    ///         }
    ///         Verdict::allow()
    ///     },
    /// );
    /// ```
    pub fn subresource_of<K: AdmissionObject>(name: impl Into<String>, subresource: &str) -> Self {
        Self::new(name, Subject::subresource::<K>(subresource))
    }

    fn new(name: impl Into<String>, subject: Subject) -> Self {
        let settings = Settings::named(name.into());
        Self { settings, subject, create: None, update: None, delete: None, connect: None, cel_rules: Vec::new() }
    }

    /// Judges objects that are created.
    pub fn on_create<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<T>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.create = Some(Box::new(move |new, context| handler(new, context).boxed()));
        self
    }

    /// Judges changes; the handler gets the object as it is and as it shall be.
    pub fn on_update<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<T>, Arc<T>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.update = Some(Box::new(move |old, new, context| handler(old, new, context).boxed()));
        self
    }

    /// Judges deletions; the handler gets the object as it is.
    pub fn on_delete<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<T>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.delete = Some(Box::new(move |old, context| handler(old, context).boxed()));
        self
    }

    /// Judges connections (`exec`, `attach`, `portforward`, `proxy`); the handler gets the options of the connection.
    pub fn on_connect<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Arc<T>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.connect = Some(Box::new(move |options, context| handler(options, context).boxed()));
        self
    }

    /// Judges by a [`Validator`], for the operations that it names.
    pub fn validator<V: Validator<T>>(mut self, validator: Arc<V>) -> Self {
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

    /// Adds a rule in CEL that the API server evaluates by itself, whether the operator runs or not: an object that is
    /// created or updated is refused (422) with `message` where `expression` is false or cannot be evaluated. The
    /// expression has `object`, `oldObject` (null for a new object), `request`, `namespaceObject` and `authorizer`.
    ///
    /// `generate policies` writes the rules of a webhook as a `ValidatingAdmissionPolicy` with its binding. They hold for
    /// what the webhook is called for (of its operations, create and update), under its selectors and match conditions,
    /// and leave an object that is being deleted alone as it does; its failure policy says nothing about them. For kinds
    /// of your own, prefer rules in the CRD (`x-kubernetes-validations`): they need no object of their own, and bind who
    /// may write policies too.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portcullis::webhooks::{Context, Validate, Verdict};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let webhook = Validate::<ConfigMap>::named("small")
    ///     .cel("!has(object.data) || object.data.size() <= 10", "data has more than 10 entries")
    ///     .on_create(|_: Arc<ConfigMap>, _: Context| async move { Verdict::allow() });
    /// ```
    pub fn cel(mut self, expression: impl Into<String>, message: impl Into<String>) -> Self {
        self.cel_rules.push(CelRule { expression: expression.into(), message: message.into() });
        self
    }

    settings!();
}

impl<T: DeserializeOwned + Send + Sync + 'static> Admit for Validate<T> {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn only_kind(&self) -> Option<&GroupVersionKind> {
        self.subject.kind()
    }

    fn manifest(&self) -> Webhook {
        let handled = [
            (Operation::Create, self.create.is_some()),
            (Operation::Update, self.update.is_some()),
            (Operation::Delete, self.delete.is_some()),
            (Operation::Connect, self.connect.is_some()),
        ];
        let webhook = manifest::webhook(WebhookKind::Validating, &self.settings, &self.subject, handled);
        Webhook { cel_rules: self.cel_rules.clone(), ..webhook }
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, context: Context) -> BoxFuture<'a, Result<Decision, Failure>> {
        async move {
            self.subject.screen(request)?;
            if let Some(decided) = exempt(request) {
                return Ok(decided);
            }
            let no_handler = || Failure::NoHandler(request.operation.to_string());
            let new = || -> Result<_, Failure> { Ok(new_object::<T>(request, &self.settings)?.map(Arc::new)) };
            let judged = match request.operation {
                Operation::Create | Operation::Connect => {
                    let handler = if request.operation == Operation::Create { &self.create } else { &self.connect };
                    let handler = handler.as_ref().ok_or_else(no_handler)?;
                    new()?.map(|new| handler(new, context))
                }
                Operation::Update => {
                    let handler = self.update.as_ref().ok_or_else(no_handler)?;
                    // What the user sent comes first: that is what can be mended.
                    match (new()?, old_object(request, &self.settings)?) {
                        (Ok(new), Ok(old)) => Ok(handler(old, new, context)),
                        (Err(unread), _) | (_, Err(unread)) => Err(unread),
                    }
                }
                Operation::Delete => {
                    let handler = self.delete.as_ref().ok_or_else(no_handler)?;
                    old_object(request, &self.settings)?.map(|old| handler(old, context))
                }
            };
            let verdict = match judged {
                Ok(verdict) => verdict,
                Err(unread) => return Ok(*unread),
            };
            Ok(Decision::by_handler(verdict.await))
        }
        .boxed()
    }
}

impl<T> fmt::Debug for Validate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validate").field("settings", &self.settings).finish_non_exhaustive()
    }
}
