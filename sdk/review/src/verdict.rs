//! The decision of a handler.

use std::collections::BTreeMap;

use crate::field::{Cause, Field};

/// The decision of a handler: allowed or denied, with warnings and audit annotations.
///
/// ```
/// use portcullis_review::{Field, Verdict};
///
/// let verdict = Verdict::deny("the ports clash").code(422).cause("spec.port", "is taken by spec.adminPort");
/// assert!(!verdict.is_allowed());
/// assert_eq!(verdict.denial().unwrap().code(), 422);
///
/// // A list of field problems is a verdict of its own: none allows, some are a 422 that names them.
/// assert!(Verdict::from_causes([]).is_allowed());
/// let verdict = Verdict::from_causes([Field::new("spec.url").invalid("must begin with https://")]);
/// assert_eq!(verdict.denial().unwrap().message(), "spec.url: must begin with https://");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a verdict that is not returned decides nothing"]
pub struct Verdict {
    pub(crate) denial: Option<Denial>,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit: BTreeMap<String, String>,
}

/// The reason why a request is denied: message, code, causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub(crate) message: String,
    pub(crate) code: u16,
    pub(crate) causes: Vec<Cause>,
}

impl Denial {
    /// Returns the message that the user sees.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the HTTP status code of the user's request.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// Returns the fields that the denial is about.
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// Returns the status `reason` for the code, which Kubernetes clients branch on.
    pub fn reason(&self) -> &'static str {
        match self.code {
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            406 => "NotAcceptable",
            409 => "Conflict",
            410 => "Gone",
            413 => "RequestEntityTooLarge",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "BadRequest",
        }
    }
}

impl Verdict {
    /// Allows the request.
    pub fn allow() -> Self {
        Self::default()
    }

    /// Denies the request, with code 400 unless [`code`](Self::code) sets another one.
    pub fn deny(message: impl Into<String>) -> Self {
        let denial = Denial { message: message.into(), code: 400, causes: Vec::new() };
        Self { denial: Some(denial), ..Self::default() }
    }

    /// Allows the request when there are no causes; otherwise denies it with 422 (`Invalid`) and a message that lists
    /// them, as the API server does for its own validation.
    pub fn from_causes(causes: impl IntoIterator<Item = Cause>) -> Self {
        let causes: Vec<Cause> = causes.into_iter().collect();
        if causes.is_empty() {
            return Self::allow();
        }
        let told: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let denial = Denial { message: told.join("; "), code: 422, causes };
        Self { denial: Some(denial), ..Self::default() }
    }

    /// Sets the HTTP status code of a denial, 400 to 599; any other value becomes 400, since the API server sends no
    /// other code for a denial. Has no effect on a verdict that allows.
    pub fn code(mut self, code: u16) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.code = if (400..600).contains(&code) { code } else { 400 };
        }
        self
    }

    /// Adds causes to a denial. Has no effect on a verdict that allows.
    pub fn causes(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.causes.extend(causes);
        }
        self
    }

    /// Adds a field with an invalid value to a denial. Has no effect on a verdict that allows.
    pub fn cause(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.causes.push(Field::new(field).invalid(message));
        }
        self
    }

    /// Adds a warning for the user; kubectl prints it as `Warning: …`. The response has at most 256 characters of each
    /// warning and 4096 of all together, which is what Kubernetes keeps; the last one says how many were left out.
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Adds an annotation to the audit event; the API server prefixes the key with the webhook's name.
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit.insert(key.into(), value.into());
        self
    }

    /// Returns whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// Returns why the request is denied; `None` when it is allowed.
    pub fn denial(&self) -> Option<&Denial> {
        self.denial.as_ref()
    }

    /// Returns the warnings for the user, uncut.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the annotations for the audit event, without the prefix.
    pub fn audit_annotations(&self) -> &BTreeMap<String, String> {
        &self.audit
    }
}
