//! Words that the operator writes and `doctor` looks for: one constant for both, so that what is worded anew is still
//! found.

/// Begins the one line that a process says on standard error when it fails.
pub const FAILED: &str = "error: ";
/// In the log: no webhook is served, by intention.
pub const WEBHOOKS_OFF: &str = "Webhooks are disabled";
/// In the log: what a webhook decided about an object begins with one of these and ends with the operation, as in
/// `validate create`.
pub const VALIDATE: &str = "validate ";
/// See [`VALIDATE`].
pub const MUTATE: &str = "mutate ";
/// In the log: what a controller decided about an object while webhooks are off.
pub const INVALID: &str = "validation failed, refusing to reconcile";
/// The answer to whatever is no POST.
pub const POST_ONLY: &str = "send reviews with POST";
