//! Validating webhooks.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use kube_core::DynamicObject;
use portcullis_manifest::{CelRule, WebhookKind};
use portcullis_review::{Request, Verdict};
use serde::de::DeserializeOwned;

use super::admit::{Admit, new_object};
use super::decision::{Decision, Failure};
use super::handler::{Handlers, handlers, register_methods};
use super::settings::{Settings, settings};
use super::target::{AdmissionObject, Subject, Target};
use super::{Context, Validator};

/// A validating webhook. The API server calls it only for operations that have a handler.
///
/// `T` is the type that handlers get: the kind itself ([`new`](Self::new)), the object of a subresource
/// ([`subresource_of`](Self::subresource_of)), or an untyped object ([`dynamic`](Self::dynamic)).
///
/// An update of an object that is being deleted (its stored `metadata.deletionTimestamp` is set) reaches no handler if
/// it changes only `metadata` or `status`, so that finalizers can be removed from invalid objects too. The generated
/// configuration exempts it with a match condition, so that this works while the webhook is down. Other updates are
/// validated as usual; a repeated deletion is not. So rules about labels, annotations and the status do not apply to an
/// object that is being deleted.
///
/// An object that does not decode as `T` is denied with the path of the field.
///
/// A handler is an async function or closure that returns a [`Verdict`], or a `Result` of one with any error. An error
/// is not a verdict: as after a panic, the answer is HTTP 500, so that the failure policy decides (or a denial, with
/// [`deny_on_failure`](Self::deny_on_failure)). The error is logged with its sources; the user reads "handler failed".
/// Handlers that share data are the methods of a [`Validator`].
///
/// Each operation has one handler: `.on_create_or_update(rule).on_update(other)` has two for UPDATE, which is
/// [`RegistrationError::DuplicateHandler`](super::RegistrationError::DuplicateHandler).
#[must_use = "a webhook does nothing until it is registered"]
pub struct Validate<T> {
    settings: Settings,
    handlers: Handlers<T, Arc<T>, Verdict>,
}

impl<K: AdmissionObject> Validate<K> {
    /// Creates a webhook for the kind `K`. The name is a DNS label, unique among the validating webhooks of the
    /// operator. The webhook is served at `/validate/{name}` and registered as `{name}.{plural}.{group}`, unless
    /// [`path`](Self::path) and [`full_name`](Self::full_name) give others.
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_subject(name, Subject::objects::<K>())
    }
}

impl Validate<DynamicObject> {
    /// Creates a webhook for untyped objects of one kind or several; [`Context::kind`] says which. It is registered as
    /// `{name}.{plural}.{group}`, or as `{name}.dynamic.portcullis.dev` when the target is more than one resource.
    pub fn dynamic(name: impl Into<String>, target: impl Into<Target>) -> Self {
        Self::with_subject(name, Subject::dynamic(target.into()))
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Validate<T> {
    /// Creates a webhook for a subresource of the kind `K`, where `T` is the type of its objects: `K` itself for
    /// `status`, [`Scale`](super::Scale) for `scale`, and for others any type that decodes them.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use portcullis_webhook::{Context, Scale, Validate, Verdict};
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
        Self::with_subject(name, Subject::subresource::<K>(subresource))
    }

    fn with_subject(name: impl Into<String>, subject: Subject) -> Self {
        let settings = Settings::new(WebhookKind::Validating, name.into(), subject);
        Self { settings, handlers: Handlers::default() }
    }

    handlers!(Arc<T>, Verdict);

    /// Registers the methods of a [`Validator`] for its operations.
    pub fn validator<V: Validator<T>>(mut self, validator: Arc<V>) -> Self {
        register_methods!(self, validator: V);
        self
    }
}

impl<T> Validate<T> {
    /// Adds a CEL rule that the API server evaluates by itself, whether the operator runs or not: it refuses to create
    /// or update an object (422) with `message` when `expression` is false or cannot be evaluated. The expression can
    /// use `object`, `oldObject` (null for a new object), `request`, `namespaceObject` and `authorizer`.
    ///
    /// `generate policies` writes the rules of a webhook as a `ValidatingAdmissionPolicy` with its binding. They apply
    /// to the CREATE and UPDATE requests that the webhook is called for, with its selectors and match conditions and
    /// the same exemption of objects that are being deleted; its failure policy does not apply to them. For kinds of
    /// your own, prefer rules in the CRD (`x-kubernetes-validations`): they need no further object, and users who may
    /// write policies cannot remove them.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portcullis_webhook::{Context, Validate, Verdict};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let webhook = Validate::<ConfigMap>::new("small")
    ///     .cel("!has(object.data) || object.data.size() <= 10", "data has more than 10 entries")
    ///     .on_create(|_: Arc<ConfigMap>, _: Context| async move { Verdict::allow() });
    /// ```
    pub fn cel(mut self, expression: impl Into<String>, message: impl Into<String>) -> Self {
        let rule = CelRule { expression: expression.into(), message: message.into() };
        self.settings.entry.cel_rules.push(rule);
        self
    }

    settings!();
}

impl<T: DeserializeOwned + Send + Sync + 'static> Admit for Validate<T> {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn call_handler<'a>(
        &'a self,
        request: &'a Request<'a>,
        context: Context,
    ) -> BoxFuture<'a, Result<Decision, Failure>> {
        let new = || new_object(request, &self.settings).map(Arc::new);
        self.handlers.call(request, &self.settings, context, new).map_ok(Decision::by_handler).boxed()
    }
}

impl<T> fmt::Debug for Validate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validate").field("settings", &self.settings).finish_non_exhaustive()
    }
}
