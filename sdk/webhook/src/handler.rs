//! Handlers of a webhook, by operation: functions, closures, and the methods of a validator or a mutator.

use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use futures::{FutureExt as _, TryFutureExt as _};
use portcullis_review::{BoxError, IntoResult, Operation, Request, Verdict};
use serde::de::DeserializeOwned;

use super::admit::text;
use super::decision::Failure;
use super::settings::Settings;
use super::{Context, OldObject, old};

/// The answer or the error of a handler.
type Answered<'a, T> = BoxFuture<'a, Result<T, BoxError>>;
/// A handler of one object.
type Handler<A, T> = Arc<dyn Fn(A, Context) -> Answered<'static, T> + Send + Sync>;
/// A handler of the old and the new object.
type UpdateHandler<T, New, Answer> =
    Arc<dyn for<'a> Fn(OldObject<'a, T>, New, Context) -> Answered<'a, Answer> + Send + Sync>;

/// The handlers of a webhook, by operation. `New` is the form in which they get the new object.
pub(super) struct Handlers<T, New, Answer> {
    pub(super) create: Option<Handler<New, Answer>>,
    pub(super) update: Option<UpdateHandler<T, New, Answer>>,
    pub(super) delete: Option<Handler<Arc<T>, Verdict>>,
    pub(super) connect: Option<Handler<New, Answer>>,
}

impl<T, New, Answer> Default for Handlers<T, New, Answer> {
    fn default() -> Self {
        Self { create: None, update: None, delete: None, connect: None }
    }
}

impl<T, New, Answer> Handlers<T, New, Answer>
where
    T: DeserializeOwned + Send + Sync + 'static,
    Answer: From<Verdict> + 'static,
{
    /// Calls the handler of the request's operation. `new` decodes the new object, before the old one is decoded: the
    /// user can fix the new one.
    pub(super) async fn call(
        &self,
        request: &Request<'_>,
        settings: &Settings,
        context: Context,
        new: impl FnOnce() -> Result<New, Failure>,
    ) -> Result<Answer, Failure> {
        let none = || Failure::NoHandler(request.operation.to_string());
        let old = || text(request, request.old_object).map(|text| OldObject::new(text, settings));
        let answered = match request.operation {
            Operation::Create => self.create.as_ref().ok_or_else(none)?(new()?, context),
            Operation::Connect => self.connect.as_ref().ok_or_else(none)?(new()?, context),
            Operation::Update => {
                let handler = self.update.as_ref().ok_or_else(none)?;
                let new = new()?;
                handler(old()?, new, context)
            }
            Operation::Delete => {
                let handler = self.delete.as_ref().ok_or_else(none)?;
                let stored = old()?.decode().map_err(|error| error.denial(request))?;
                handler(stored, context).map_ok(Answer::from).boxed()
            }
        };
        answered.await.map_err(|error| old::failure(error, request))
    }
}

/// Defines the methods of a webhook type that register functions and closures. Handlers get the new object as `$New`
/// and return `$Answer`.
macro_rules! handlers {
    ($New:ty, $Answer:ty) => {
        /// Handles CREATE alone; [`on_create_or_update`](Self::on_create_or_update) handles updates too.
        pub fn on_create<F, R>(mut self, handler: F) -> Self
        where
            F: Fn($New, $crate::Context) -> R + Send + Sync + 'static,
            R: Future<Output: $crate::IntoResult<$Answer>> + Send + 'static,
        {
            self.settings.add_operation($crate::Operation::Create);
            self.handlers.create = Some($crate::handler::boxed(handler));
            self
        }

        /// Handles CREATE and UPDATE by one rule for the new object: the usual choice, since a rule that is registered
        /// for CREATE alone does not hold for an object that is changed afterwards. The old object is not decoded, so
        /// that an update can repair one that does not decode.
        pub fn on_create_or_update<F, R>(mut self, handler: F) -> Self
        where
            F: Fn($New, $crate::Context) -> R + Send + Sync + 'static,
            R: Future<Output: $crate::IntoResult<$Answer>> + Send + 'static,
        {
            let handler = $crate::handler::boxed(handler);
            self.settings.add_operation($crate::Operation::Create);
            self.settings.add_operation($crate::Operation::Update);
            self.handlers.create = Some(std::sync::Arc::clone(&handler));
            self.handlers.update = Some(std::sync::Arc::new(move |_, new, context| handler(new, context)));
            self
        }

        /// Handles UPDATE; the handler gets the old and the new object.
        pub fn on_update<F, R>(mut self, handler: F) -> Self
        where
            F: Fn(std::sync::Arc<T>, $New, $crate::Context) -> R + Send + Sync + 'static,
            R: Future<Output: $crate::IntoResult<$Answer>> + Send + 'static,
        {
            self.settings.add_operation($crate::Operation::Update);
            self.handlers.update = Some($crate::handler::boxed_update(handler));
            self
        }

        /// Handles DELETE; the handler gets the stored object. There is no new one to mutate, so it returns a
        /// [`Verdict`](crate::Verdict).
        pub fn on_delete<F, R>(mut self, handler: F) -> Self
        where
            F: Fn(std::sync::Arc<T>, $crate::Context) -> R + Send + Sync + 'static,
            R: Future<Output: $crate::IntoResult<$crate::Verdict>> + Send + 'static,
        {
            self.settings.add_operation($crate::Operation::Delete);
            self.handlers.delete = Some($crate::handler::boxed(handler));
            self
        }

        /// Handles CONNECT (`exec`, `attach`, `portforward`, `proxy`); the handler gets the options of the connection.
        pub fn on_connect<F, R>(mut self, handler: F) -> Self
        where
            F: Fn($New, $crate::Context) -> R + Send + Sync + 'static,
            R: Future<Output: $crate::IntoResult<$Answer>> + Send + 'static,
        {
            self.settings.add_operation($crate::Operation::Connect);
            self.handlers.connect = Some($crate::handler::boxed(handler));
            self
        }
    };
}
pub(super) use handlers;

/// Registers the methods of a [`Validator`](super::Validator) or [`Mutator`](super::Mutator) for its operations.
macro_rules! register_methods {
    ($webhook:ident, $value:ident: $Methods:ident) => {
        register_methods!(@ $webhook, $value: $Methods {
            Create create(new), Update update(old, new), Delete delete(old), Connect connect(options)
        })
    };
    (@ $webhook:ident, $value:ident: $Methods:ident { $($Operation:ident $method:ident($($object:ident),+)),+ }) => {
        let futures = [$($crate::validator::future_name(|($($object,)+ cx)| $value.$method($($object,)+ cx))),+];
        for &operation in $Methods::OPERATIONS {
            $webhook.settings.add_operation(operation);
            let value = Arc::clone(&$value);
            match operation {
                $($crate::Operation::$Operation => {
                    $webhook.handlers.$method = Some(Arc::new(move |$($object,)+ cx| {
                        let value = Arc::clone(&value);
                        async move { value.$method($($object,)+ cx).await }.boxed()
                    }));
                })+
            }
        }
        if let Some(mistake) = $crate::validator::mistake(&$webhook.settings.name, $Methods::OPERATIONS, futures) {
            $webhook.settings.note(mistake);
        }
    };
}
pub(super) use register_methods;

/// Boxes a function of one object.
pub(super) fn boxed<A, T: 'static, F, R>(handler: F) -> Handler<A, T>
where
    F: Fn(A, Context) -> R + Send + Sync + 'static,
    R: Future<Output: IntoResult<T>> + Send + 'static,
{
    Arc::new(move |object, context| handler(object, context).map(IntoResult::into_result).boxed())
}

/// Boxes a function of the old and the new object. Without an old object that decodes it is not called.
pub(super) fn boxed_update<T, New, Answer, F, R>(handler: F) -> UpdateHandler<T, New, Answer>
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
