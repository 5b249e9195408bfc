//! The reasons for which a call is not answered with a review.

/// The reason why a call got no review as an answer, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// No such path or method, or not JSON.
    NotServed,
    /// The body is no review.
    Malformed,
    /// The body is over its limit.
    TooLarge,
    /// There is no room for it now.
    Shed,
    /// The body or the handler took too long.
    Timeout,
    /// The handler panicked.
    Panic,
    /// The handler or engine could not decide.
    Failed,
}

impl Rejected {
    /// The number of reasons.
    pub(crate) const COUNT: usize = Self::Failed as usize + 1;

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotServed => "not_served",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Shed => "shed",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Failed => "failed",
        }
    }
}
