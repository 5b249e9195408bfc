//! Handlers with their types taken away: functions, closures, and methods of the value that is the webhook's state.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_review::{BoxError, IntoResult};

use super::Context;

/// The answer or the error of a handler.
pub(super) type Answered<T> = BoxFuture<'static, Result<T, BoxError>>;
/// A handler of one object.
pub(super) type OfOne<A, T> = Box<dyn Fn(A, Context) -> Answered<T> + Send + Sync>;
/// A handler of the old and the new object.
pub(super) type OfTwo<A, B, T> = Box<dyn Fn(A, B, Context) -> Answered<T> + Send + Sync>;

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
    Box::new(move |object, context| handler(object, context).map(IntoResult::into_result).boxed())
}

/// A function of the old and the new object.
pub(super) fn of_two<A, B, T: 'static, F, R>(handler: F) -> OfTwo<A, B, T>
where
    F: Fn(A, B, Context) -> R + Send + Sync + 'static,
    R: Future<Output: IntoResult<T>> + Send + 'static,
{
    Box::new(move |old, new, context| handler(old, new, context).map(IntoResult::into_result).boxed())
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
    Box::new(move |object, context| {
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
    Box::new(move |old, new, context| {
        let state = Arc::clone(&state);
        async move { method.call(&state, (old, new, context)).await }.boxed()
    })
}
