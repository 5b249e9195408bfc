//! Handlers with their types taken away: functions, closures, and methods of the value that is the webhook's state.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_review::{BoxError, IntoResult, Operation, Request, Verdict};
use serde::de::DeserializeOwned;

use super::Context;
use super::admit::{Decision, Failure, old_object};
use super::settings::Settings;

/// The answer or the error of a handler.
pub(super) type Answered<T> = BoxFuture<'static, Result<T, BoxError>>;
/// A handler of one object.
pub(super) type OfOne<A, T> = Arc<dyn Fn(A, Context) -> Answered<T> + Send + Sync>;
/// A handler of the old and the new object.
pub(super) type OfTwo<A, B, T> = Arc<dyn Fn(A, B, Context) -> Answered<T> + Send + Sync>;

/// A handler of UPDATE.
pub(super) enum OnUpdate<T, New, Answer> {
    /// Takes the new object alone; the old one is not even decoded, so that one that does not decode can be repaired.
    New(OfOne<New, Answer>),
    /// Takes the old and the new object.
    Both(OfTwo<Arc<T>, New, Answer>),
}

/// The handlers of a webhook, by operation. `New` is the form in which they get the new object.
pub(super) struct Handlers<T, New, Answer> {
    pub(super) create: Option<OfOne<New, Answer>>,
    pub(super) update: Option<OnUpdate<T, New, Answer>>,
    pub(super) delete: Option<OfOne<Arc<T>, Verdict>>,
    pub(super) connect: Option<OfOne<New, Answer>>,
}

impl<T, New, Answer> Default for Handlers<T, New, Answer> {
    fn default() -> Self {
        Self { create: None, update: None, delete: None, connect: None }
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static, New, Answer> Handlers<T, New, Answer> {
    /// Registers one handler for CREATE and UPDATE.
    pub(super) fn on_create_or_update(&mut self, handler: OfOne<New, Answer>) {
        self.create = Some(handler.clone());
        self.update = Some(OnUpdate::New(handler));
    }

    /// The operations that have a handler.
    pub(super) fn operations(&self) -> Vec<Operation> {
        let handled = [
            (Operation::Create, self.create.is_some()),
            (Operation::Update, self.update.is_some()),
            (Operation::Delete, self.delete.is_some()),
            (Operation::Connect, self.connect.is_some()),
        ];
        handled.into_iter().filter_map(|(operation, handled)| handled.then_some(operation)).collect()
    }

    /// Calls the handler of a CREATE, UPDATE or CONNECT, with the object that `new` decodes; or returns the denial of an
    /// object that does not decode.
    pub(super) fn call(
        &self,
        request: &Request<'_>,
        settings: &Settings,
        context: Context,
        new: impl FnOnce() -> Result<Result<New, Box<Decision>>, Failure>,
    ) -> Result<Result<Answered<Answer>, Box<Decision>>, Failure> {
        let handler = match request.operation {
            Operation::Create => self.create.as_ref(),
            Operation::Connect => self.connect.as_ref(),
            Operation::Update => match &self.update {
                None => None,
                Some(OnUpdate::New(handler)) => Some(handler),
                // A problem of the new object is reported first, because the user can fix it.
                Some(OnUpdate::Both(handler)) => {
                    return Ok(match (new()?, old_object(request, settings)?) {
                        (Ok(new), Ok(old)) => Ok(handler(old, new, context)),
                        (Err(undecoded), _) | (_, Err(undecoded)) => Err(undecoded),
                    });
                }
            },
            Operation::Delete => None,
        };
        let handler = handler.ok_or_else(|| Failure::NoHandler(request.operation.to_string()))?;
        Ok(new()?.map(|new| handler(new, context)))
    }

    /// Calls the handler of a DELETE; or returns the denial of an object that does not decode.
    pub(super) fn call_delete(
        &self,
        request: &Request<'_>,
        settings: &Settings,
        context: Context,
    ) -> Result<Result<Answered<Verdict>, Box<Decision>>, Failure> {
        let handler = self.delete.as_ref().ok_or_else(|| Failure::NoHandler(request.operation.to_string()))?;
        Ok(old_object(request, settings)?.map(|old| handler(old, context)))
    }
}

/// An async method of `S` that takes the arguments `A` and returns a `T` or a `Result` of it: a handler after
/// [`Validate::state`](super::Validate::state) or [`Mutate::state`](super::Mutate::state).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a method of `{S}` that takes `{A}` and returns `{T}`",
    note = "write `async fn handler(&self, …) -> {T}`, or one that returns a `Result<{T}, E>`, with the arguments `{A}`"
)]
pub trait Method<'s, S, A, T>: Copy + Send + Sync + 'static {
    /// Calls the method.
    #[doc(hidden)]
    fn call(self, state: &'s S, arguments: A) -> BoxFuture<'s, Result<T, BoxError>>;
}

impl<'s, S, A, T: 's, F, R> Method<'s, S, (A, Context), T> for F
where
    S: 's,
    F: Fn(&'s S, A, Context) -> R + Copy + Send + Sync + 'static,
    R: Future<Output: IntoResult<T>> + Send + 's,
{
    fn call(self, state: &'s S, (object, context): (A, Context)) -> BoxFuture<'s, Result<T, BoxError>> {
        self(state, object, context).map(IntoResult::into_result).boxed()
    }
}

impl<'s, S, A, B, T: 's, F, R> Method<'s, S, (A, B, Context), T> for F
where
    S: 's,
    F: Fn(&'s S, A, B, Context) -> R + Copy + Send + Sync + 'static,
    R: Future<Output: IntoResult<T>> + Send + 's,
{
    fn call(self, state: &'s S, (old, new, context): (A, B, Context)) -> BoxFuture<'s, Result<T, BoxError>> {
        self(state, old, new, context).map(IntoResult::into_result).boxed()
    }
}

/// A function of one object.
pub(super) fn of_one<A, T: 'static, F, R>(handler: F) -> OfOne<A, T>
where
    F: Fn(A, Context) -> R + Send + Sync + 'static,
    R: Future<Output: IntoResult<T>> + Send + 'static,
{
    Arc::new(move |object, context| handler(object, context).map(IntoResult::into_result).boxed())
}

/// A function of the old and the new object.
pub(super) fn of_two<A, B, T: 'static, F, R>(handler: F) -> OfTwo<A, B, T>
where
    F: Fn(A, B, Context) -> R + Send + Sync + 'static,
    R: Future<Output: IntoResult<T>> + Send + 'static,
{
    Arc::new(move |old, new, context| handler(old, new, context).map(IntoResult::into_result).boxed())
}

/// A method that handles one object.
pub(super) fn method_of_one<S, A, T, F>(state: &Arc<S>, method: F) -> OfOne<A, T>
where
    S: Send + Sync + 'static,
    A: Send + 'static,
    T: 'static,
    F: for<'s> Method<'s, S, (A, Context), T>,
{
    let state = Arc::clone(state);
    Arc::new(move |object, context| {
        let state = Arc::clone(&state);
        async move { method.call(&state, (object, context)).await }.boxed()
    })
}

/// A method that handles the old and the new object.
pub(super) fn method_of_two<S, A, B, T, F>(state: &Arc<S>, method: F) -> OfTwo<A, B, T>
where
    S: Send + Sync + 'static,
    A: Send + 'static,
    B: Send + 'static,
    T: 'static,
    F: for<'s> Method<'s, S, (A, B, Context), T>,
{
    let state = Arc::clone(state);
    Arc::new(move |old, new, context| {
        let state = Arc::clone(&state);
        async move { method.call(&state, (old, new, context)).await }.boxed()
    })
}
