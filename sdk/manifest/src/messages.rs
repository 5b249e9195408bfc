//! Log texts that the operator writes and `doctor` searches for, as one constant for both.

/// Prefix of the line that a failing process writes to standard error.
pub const FAILED: &str = "error: ";
/// Prefix of the log line with a validating webhook's decision; the operation follows, as in `validate create`.
pub const VALIDATE: &str = "validate ";
/// Prefix of the log line with a mutating webhook's decision; see [`VALIDATE`].
pub const MUTATE: &str = "mutate ";
/// Log line of a controller that refuses an invalid object while webhooks are off.
pub const INVALID: &str = "validation failed, refusing to reconcile";
/// The answer to requests other than POST.
pub const POST_ONLY: &str = "send reviews with POST";
