//! Values whose methods are the handlers of a webhook.

use std::any::type_name;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use portcullis_review::{BoxError, Operation, Verdict};

use super::{Context, Mutation, OldObject};

/// A value that validates objects: the handlers of a [`Validate`](super::Validate) that share a client, a store or
/// settings. It is registered with [`Validate::validator`](super::Validate::validator).
///
/// The API server calls the webhook for [`OPERATIONS`](Self::OPERATIONS). Each of them needs its method, or else the
/// registration is refused with [`RegistrationError::NoMethod`](super::RegistrationError::NoMethod). A method of another
/// operation is not called. An update without a method of its own is validated as a creation, so that one rule holds
/// for both.
///
/// An error is handled as for any handler, see [`Validate`](super::Validate): it is no verdict. A controller can share
/// the value, and validate stored objects with it in the context of [`Context::from_stored`].
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use portcullis_webhook::{BoxError, Context, Operation, Validate, Validator, Verdict};
///
/// struct Quota {
///     seats: u32,
/// }
///
/// impl Validator<ConfigMap> for Quota {
///     const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];
///
///     async fn create(&self, new: Arc<ConfigMap>, _: Context) -> Result<Verdict, BoxError> {
///         let Some(seats) = new.data.as_ref().and_then(|data| data.get("seats")) else { return Ok(Verdict::allow()) };
///         if seats.parse::<u32>()? > self.seats {
///             return Ok(Verdict::deny(format!("only {} seats are left", self.seats)).code(422));
///         }
///         Ok(Verdict::allow())
///     }
/// }
///
/// let quota = Arc::new(Quota { seats: 10 });
/// let webhook = Validate::<ConfigMap>::new("quota").validator(quota.clone());
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
///
/// let stored = Arc::new(ConfigMap::default());
/// let verdict = quota.create(stored.clone(), Context::from_stored(&*stored)).await?;
/// assert!(verdict.is_allowed());
/// # Ok::<(), BoxError>(())
/// # })?;
/// # Ok::<(), BoxError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not validate `{T}`",
    label = "write `impl Validator<{T}> for {Self}`",
    note = "the type of the objects in `impl Validator<…>` must be that of the webhook, `Validate::<{T}>`"
)]
pub trait Validator<T: Send + Sync + 'static>: Send + Sync + 'static {
    /// The operations that the API server calls the webhook for.
    const OPERATIONS: &'static [Operation];

    /// Validates an object that is created.
    fn create(&self, _new: Arc<T>, _cx: Context) -> impl Future<Output = Result<Verdict, BoxError>> + Send {
        NoMethod::new::<Self>("create")
    }

    /// Validates an update. By default the new object is validated as one that is created.
    fn update(
        &self,
        _old: OldObject<'_, T>,
        new: Arc<T>,
        cx: Context,
    ) -> impl Future<Output = Result<Verdict, BoxError>> + Send {
        self.create(new, cx)
    }

    /// Validates the deletion of an object, with the object as it is stored.
    fn delete(&self, _old: Arc<T>, _cx: Context) -> impl Future<Output = Result<Verdict, BoxError>> + Send {
        NoMethod::new::<Self>("delete")
    }

    /// Validates a connection (`exec`, `attach`, `portforward`, `proxy`) by its options.
    fn connect(&self, _options: Arc<T>, _cx: Context) -> impl Future<Output = Result<Verdict, BoxError>> + Send {
        NoMethod::new::<Self>("connect")
    }
}

/// A value that mutates objects: the handlers of a [`Mutate`](super::Mutate) that share a client, a store or settings.
/// It is registered with [`Mutate::mutator`](super::Mutate::mutator). The rest is as for a [`Validator`].
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use portcullis_webhook::{BoxError, Context, Mutate, Mutation, Mutator, Operation};
///
/// struct Team(String);
///
/// impl Mutator<ConfigMap> for Team {
///     const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];
///
///     async fn create(&self, mut new: ConfigMap, _: Context) -> Result<Mutation<ConfigMap>, BoxError> {
///         new.metadata.labels.get_or_insert_default().insert("team".to_owned(), self.0.clone());
///         Ok(Mutation::modified(new))
///     }
/// }
///
/// let webhook = Mutate::<ConfigMap>::new("team").mutator(Arc::new(Team("blue".to_owned())));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not mutate `{T}`",
    label = "write `impl Mutator<{T}> for {Self}`",
    note = "the type of the objects in `impl Mutator<…>` must be that of the webhook, `Mutate::<{T}>`"
)]
pub trait Mutator<T: Send + Sync + 'static>: Send + Sync + 'static {
    /// The operations that the API server calls the webhook for.
    const OPERATIONS: &'static [Operation];

    /// Mutates an object that is created.
    fn create(&self, _new: T, _cx: Context) -> impl Future<Output = Result<Mutation<T>, BoxError>> + Send {
        NoMethod::new::<Self>("create")
    }

    /// Mutates the new object of an update. By default it is mutated as one that is created.
    fn update(
        &self,
        _old: OldObject<'_, T>,
        new: T,
        cx: Context,
    ) -> impl Future<Output = Result<Mutation<T>, BoxError>> + Send {
        self.create(new, cx)
    }

    /// Validates the deletion of an object. There is no object to mutate.
    fn delete(&self, _old: Arc<T>, _cx: Context) -> impl Future<Output = Result<Verdict, BoxError>> + Send {
        NoMethod::new::<Self>("delete")
    }

    /// Mutates the options of a connection (`exec`, `attach`, `portforward`, `proxy`).
    fn connect(&self, _options: T, _cx: Context) -> impl Future<Output = Result<Mutation<T>, BoxError>> + Send {
        NoMethod::new::<Self>("connect")
    }
}

/// The future of a method that a value does not have. [`is_missing`] finds it at the registration.
struct NoMethod<T> {
    error: String,
    answer: PhantomData<fn() -> T>,
}

impl<T> NoMethod<T> {
    fn new<S: ?Sized>(method: &str) -> Self {
        Self { error: format!("{} has no method `{method}`", type_name::<S>()), answer: PhantomData }
    }
}

impl<T> Future for NoMethod<T> {
    type Output = Result<T, BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(self.error.clone().into()))
    }
}

/// Whether a method of a validator or mutator is the default one. The name of the future that it returns tells: a
/// `TypeId` needs a type without lifetimes, and this future borrows the value.
pub(super) fn is_missing<A, R>(_: impl FnOnce(A) -> R) -> bool {
    let name = type_name::<NoMethod<()>>();
    name.split_once('<').is_some_and(|(name, _)| type_name::<R>().starts_with(name))
}
