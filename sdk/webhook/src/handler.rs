//! Type-erased handlers: functions, closures, and the methods of a validator or a mutator.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use portcullis_review::{BoxError, IntoResult, Operation, Request, Verdict};
use serde::de::DeserializeOwned;

use super::admit::{Failure, text};
use super::settings::Settings;
use super::{Context, OldObject, RegistrationError};

/// The answer or the error of a handler.
pub(super) type Answered<'a, T> = BoxFuture<'a, Result<T, BoxError>>;
/// A handler of one object.
pub(super) type OfOne<A, T> = Arc<dyn Fn(A, Context) -> Answered<'static, T> + Send + Sync>;
/// A handler of the old and the new object.
pub(super) type OfTwo<T, New, Answer> =
    Arc<dyn for<'a> Fn(OldObject<'a, T>, New, Context) -> Answered<'a, Answer> + Send + Sync>;

/// The handlers of a webhook, by operation. `New` is the form in which they get the new object.
pub(super) struct Handlers<T, New, Answer> {
    create: Option<OfOne<New, Answer>>,
    update: Option<OfTwo<T, New, Answer>>,
    delete: Option<OfOne<Arc<T>, Verdict>>,
    connect: Option<OfOne<New, Answer>>,
    /// An operation that has two handlers.
    duplicate: Option<Operation>,
    /// An operation of a validator or mutator that does not have its method.
    pub(super) missing: Option<Operation>,
}

impl<T, New, Answer> Default for Handlers<T, New, Answer> {
    fn default() -> Self {
        Self { create: None, update: None, delete: None, connect: None, duplicate: None, missing: None }
    }
}

impl<T, New, Answer> Handlers<T, New, Answer>
where
    T: DeserializeOwned + Send + Sync + 'static,
    New: 'static,
    Answer: 'static,
{
    pub(super) fn on_create(&mut self, handler: OfOne<New, Answer>) {
        register(&mut self.create, handler, Operation::Create, &mut self.duplicate);
    }

    pub(super) fn on_update(&mut self, handler: OfTwo<T, New, Answer>) {
        register(&mut self.update, handler, Operation::Update, &mut self.duplicate);
    }

    pub(super) fn on_delete(&mut self, handler: OfOne<Arc<T>, Verdict>) {
        register(&mut self.delete, handler, Operation::Delete, &mut self.duplicate);
    }

    pub(super) fn on_connect(&mut self, handler: OfOne<New, Answer>) {
        register(&mut self.connect, handler, Operation::Connect, &mut self.duplicate);
    }

    /// Registers one handler for CREATE and UPDATE. It does not decode the old object, so that an update can repair one
    /// that does not decode.
    pub(super) fn on_create_or_update(&mut self, handler: OfOne<New, Answer>) {
        self.on_create(handler.clone());
        self.on_update(Arc::new(move |_, new, context| handler(new, context)));
    }

    /// Checks that each operation of this webhook has one handler.
    pub(super) fn check(&self, name: &str) -> Result<(), RegistrationError> {
        let name = name.to_owned();
        match (self.duplicate, self.missing) {
            (Some(operation), _) => Err(RegistrationError::DuplicateHandler { name, operation }),
            (None, Some(operation)) => Err(RegistrationError::NoMethod { name, operation }),
            (None, None) => Ok(()),
        }
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

    /// Calls the handler of a CREATE, UPDATE or CONNECT with the object that `new` decodes. The new object is decoded
    /// before the old one, because the user can fix it.
    pub(super) fn call<'r>(
        &self,
        request: &'r Request<'r>,
        settings: &Settings,
        context: Context,
        new: impl FnOnce() -> Result<New, Failure>,
    ) -> Result<Answered<'r, Answer>, Failure> {
        let handler = match request.operation {
            Operation::Create => self.create.as_ref(),
            Operation::Connect => self.connect.as_ref(),
            Operation::Delete => None,
            Operation::Update => {
                let handler = self.update.as_ref().ok_or_else(|| no_handler(request))?;
                let new = new()?;
                return Ok(handler(OldObject::new(text(request, request.old_object)?, settings), new, context));
            }
        };
        Ok(handler.ok_or_else(|| no_handler(request))?(new()?, context))
    }

    /// Calls the handler of a DELETE.
    pub(super) fn call_delete(
        &self,
        request: &Request<'_>,
        settings: &Settings,
        context: Context,
    ) -> Result<Answered<'static, Verdict>, Failure> {
        let handler = self.delete.as_ref().ok_or_else(|| no_handler(request))?;
        let old = OldObject::new(text(request, request.old_object)?, settings);
        Ok(handler(old.decode().map_err(|error| error.denial(request))?, context))
    }
}

fn register<H>(slot: &mut Option<H>, handler: H, operation: Operation, duplicate: &mut Option<Operation>) {
    if slot.replace(handler).is_some() {
        *duplicate = Some(operation);
    }
}

fn no_handler(request: &Request<'_>) -> Failure {
    Failure::NoHandler(request.operation.to_string())
}

/// Registers the methods of a [`Validator`](super::Validator) or [`Mutator`](super::Mutator) for its operations.
macro_rules! register_methods {
    ($handlers:expr, $value:expr, $Methods:ident) => {
        for &operation in $Methods::OPERATIONS {
            let value = Arc::clone(&$value);
            let is_missing = match operation {
                Operation::Create => is_missing($Methods::create),
                Operation::Update => is_missing_update($Methods::update),
                Operation::Delete => is_missing($Methods::delete),
                Operation::Connect => is_missing($Methods::connect),
            };
            if is_missing {
                $handlers.missing = Some(operation);
            }
            match operation {
                Operation::Create => {
                    $handlers.on_create(Arc::new(move |new, cx| {
                        let value = Arc::clone(&value);
                        async move { value.create(new, cx).await }.boxed()
                    }));
                }
                Operation::Update => {
                    $handlers.on_update(Arc::new(move |old, new, cx| {
                        let value = Arc::clone(&value);
                        async move { value.update(old, new, cx).await }.boxed()
                    }));
                }
                Operation::Delete => {
                    $handlers.on_delete(Arc::new(move |old, cx| {
                        let value = Arc::clone(&value);
                        async move { value.delete(old, cx).await }.boxed()
                    }));
                }
                Operation::Connect => {
                    $handlers.on_connect(Arc::new(move |options, cx| {
                        let value = Arc::clone(&value);
                        async move { value.connect(options, cx).await }.boxed()
                    }));
                }
            }
        }
    };
}
pub(super) use register_methods;

/// Boxes a function of one object.
pub(super) fn of_one<A, T: 'static, F, R>(handler: F) -> OfOne<A, T>
where
    F: Fn(A, Context) -> R + Send + Sync + 'static,
    R: Future<Output: IntoResult<T>> + Send + 'static,
{
    Arc::new(move |object, context| handler(object, context).map(IntoResult::into_result).boxed())
}

/// Boxes a function of the old and the new object. Without an old object that decodes it is not called.
pub(super) fn of_two<T, New, Answer, F, R>(handler: F) -> OfTwo<T, New, Answer>
where
    T: DeserializeOwned + 'static,
    New: 'static,
    Answer: Send + 'static,
    F: Fn(Arc<T>, New, Context) -> R + Send + Sync + 'static,
    R: Future<Output: IntoResult<Answer>> + Send + 'static,
{
    Arc::new(move |old, new, context| match old.decode() {
        Ok(old) => handler(old, new, context).map(IntoResult::into_result).boxed(),
        Err(error) => ready(Err(error.into())).boxed(),
    })
}
