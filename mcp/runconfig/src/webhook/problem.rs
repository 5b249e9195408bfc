//! A rule that a webhook breaks.

/// One rule that a webhook breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The member, in the document's spelling, such as `tls_config.client_key_path`.
    pub field: &'static str,
    /// The problem and its fix.
    pub message: String,
}
