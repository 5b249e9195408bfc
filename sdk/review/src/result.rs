//! Return types of handlers: a value, or a `Result` of it.

use std::error::Error;

/// Any error of a handler or a converter.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A return value of handlers: a `T`, or a `Result` of it with any error, so that `?` works.
///
/// ```
/// use portcullis_review::{IntoResult, Verdict};
///
/// let sure: Result<Verdict, _> = Verdict::allow().into_result();
/// assert!(sure.is_ok());
/// let read: Result<u32, _> = "many".parse::<u32>().into_result();
/// assert_eq!(read.unwrap_err().to_string(), "invalid digit found in string");
/// ```
#[diagnostic::on_unimplemented(
    message = "this must return `{T}` or a `Result` of it, and returns `{Self}`",
    note = "the error of the `Result` can be any type that converts to `Box<dyn Error + Send + Sync>`"
)]
pub trait IntoResult<T> {
    /// Converts the return value to a `Result`.
    fn into_result(self) -> Result<T, BoxError>;
}

impl<T> IntoResult<T> for T {
    fn into_result(self) -> Result<T, BoxError> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError>> IntoResult<T> for Result<T, E> {
    fn into_result(self) -> Result<T, BoxError> {
        self.map_err(Into::into)
    }
}

/// Returns the messages of an error and of its sources, in one line.
///
/// ```
/// use std::io;
/// use portcullis_review::error_chain;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("cannot look up the quota")]
/// struct Lookup(#[source] io::Error);
///
/// let error = Lookup(io::Error::other("connection refused"));
/// assert_eq!(error_chain(&error), "cannot look up the quota: connection refused");
/// ```
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
