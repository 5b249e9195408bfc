//! The effects of guards on requests.

/// The effect of a guard on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request passes.
    Allowed,
    /// The request passes in another form.
    Changed,
    /// The request is refused.
    Denied,
    /// The request is refused since the guard could not read it: a webhook answered HTTP 400, 413, 414, 415 or 431.
    Blamed,
    /// The request is refused since the guard gave no usable answer.
    Failed,
    /// The guard gave no usable answer, and its failure policy lets the request pass.
    Ignored,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Allowed, Self::Changed, Self::Denied, Self::Blamed, Self::Failed, Self::Ignored];

    /// Whether the request does not pass.
    pub fn refuses(self) -> bool {
        matches!(self, Self::Denied | Self::Blamed | Self::Failed)
    }

    /// Its name in metrics and audit events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Changed => "changed",
            Self::Denied => "denied",
            Self::Blamed => "blamed",
            Self::Failed => "failed",
            Self::Ignored => "ignored",
        }
    }
}
