//! The return value of mutating handlers.

use portcullis_review::Verdict;

/// A mutating handler's return value: the unchanged object, an edited one, or a denial.
///
/// ```
/// use portcullis_webhook::{Mutation, Verdict};
/// # use k8s_openapi::api::core::v1::ConfigMap;
///
/// let nothing = Mutation::<ConfigMap>::unchanged();
/// let edited = Mutation::modified(ConfigMap::default()).warn("data was sorted");
/// let refused: Mutation<ConfigMap> = Verdict::deny("data is too big").code(413).into();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a mutation that is not returned changes nothing"]
pub struct Mutation<K> {
    pub(super) object: Option<K>,
    pub(super) verdict: Verdict,
}

impl<K> Mutation<K> {
    /// Allows the request without changes.
    pub fn unchanged() -> Self {
        Verdict::allow().into()
    }

    /// Allows the request with these edits. Return the object that the handler got, edited: fields unknown to `K` are
    /// kept, and only differences become part of the patch.
    pub fn modified(object: K) -> Self {
        Self { object: Some(object), verdict: Verdict::allow() }
    }

    /// Denies the request with code 400. For another code or causes, convert a [`Verdict`] with `into()`.
    pub fn deny(message: impl Into<String>) -> Self {
        Verdict::deny(message).into()
    }

    /// Adds a warning for the user; see [`Verdict::warn`].
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.verdict = self.verdict.warn(warning);
        self
    }

    /// Adds an annotation to the audit event; see [`Verdict::audit`].
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.verdict = self.verdict.audit(key, value);
        self
    }

    /// Returns the edited object, if there is one.
    pub fn object(&self) -> Option<&K> {
        self.object.as_ref()
    }

    /// Returns the verdict: allowed or denied, warnings, audit annotations.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

impl<K> From<Verdict> for Mutation<K> {
    fn from(verdict: Verdict) -> Self {
        Self { object: None, verdict }
    }
}
