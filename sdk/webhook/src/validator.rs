//! Values whose methods are the handlers of a webhook.

use std::any::type_name;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use portcullis_review::{BoxError, Operation, Verdict};

use super::{Context, Mutation, OldObject, RegistrationError};

/// A value that validates objects: the handlers of a [`Validate`](super::Validate) that share a client, a store or
/// settings. It is registered with [`Validate::validator`](super::Validate::validator).
///
/// The API server calls the webhook for [`OPERATIONS`](Self::OPERATIONS). An operation without its method is refused at
/// the registration ([`RegistrationError::NoMethod`]), as is a method of an operation that is not named
/// ([`RegistrationError::UnusedMethod`]). An update without a method of its own is validated as a creation, so that one
/// rule holds for both.
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

/// The future of a method that a value does not have. [`mistake`] finds it at the registration.
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

/// The name of the future that a method returns. It tells a default method from another: a `TypeId` needs a type without
/// lifetimes, and this future borrows the value.
pub(super) fn future_name<A, R>(_: impl FnOnce(A) -> R) -> &'static str {
    type_name::<R>()
}

/// The first difference between the operations that are named and the methods that there are. `futures` are the names of
/// what the methods for CREATE, UPDATE, DELETE and CONNECT return.
pub(super) fn mistake(
    webhook: &str,
    operations: &[Operation],
    futures: [&'static str; 4],
) -> Option<RegistrationError> {
    let is_named = |operation| operations.contains(&operation);
    let default = type_name::<NoMethod<()>>().split('<').next().unwrap_or_default();
    let exists = futures.map(|future| !future.starts_with(default));
    // The default method for UPDATE returns what the one for CREATE does.
    let is_default_update = futures[0] == futures[1];
    let name = || webhook.to_owned();
    let each = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
    each.into_iter().zip(exists).find_map(|(operation, exists)| {
        let is_used = match operation {
            Operation::Create => is_named(operation) || is_default_update && is_named(Operation::Update),
            Operation::Update => is_named(operation) || is_default_update,
            Operation::Delete | Operation::Connect => is_named(operation),
        };
        match (is_named(operation), exists) {
            (true, false) => Some(RegistrationError::NoMethod { name: name(), operation }),
            (false, true) if !is_used => Some(RegistrationError::UnusedMethod { name: name(), operation }),
            _ => None,
        }
    })
}
