//! What a handler decides.

use std::collections::BTreeMap;
use std::fmt;

/// Allowed or denied, with what the user shall be told either way.
///
/// ```
/// use portcullis_review::{Cause, Verdict};
///
/// let verdict = Verdict::deny("the ports clash").code(422).cause("spec.port", "is taken by spec.adminPort");
/// assert!(!verdict.is_allowed());
/// assert_eq!(verdict.denial().unwrap().code(), 422);
///
/// // A list of field problems is a verdict of its own: none allows, some are a 422 that names them.
/// assert!(Verdict::of([]).is_allowed());
/// let verdict = Verdict::of([Cause::new("spec.url", "must begin with https://")]);
/// assert_eq!(verdict.denial().unwrap().message(), "spec.url: must begin with https://");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a verdict that is not returned decides nothing"]
pub struct Verdict {
    pub(crate) denial: Option<Denial>,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit: BTreeMap<String, String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub(crate) message: String,
    pub(crate) code: u16,
    pub(crate) causes: Vec<Cause>,
}

/// One field that a denial is about; becomes an entry of `status.details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub(crate) field: String,
    pub(crate) message: String,
    pub(crate) reason: &'static str,
}

impl Cause {
    /// A field, written as a path from the root of the object (`spec.ports[0].name`), and what is wrong with it.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into(), reason: "FieldValueInvalid" }
    }

    /// A field that must be there.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueRequired", ..Self::new(field, message) }
    }

    /// A field that may not be set here, or not changed.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueForbidden", ..Self::new(field, message) }
    }

    /// A field whose value is taken by another of its kind. The value is told to the user.
    pub fn duplicate(field: impl Into<String>, value: impl fmt::Display) -> Self {
        let message = format!("duplicate value: {:?}", value.to_string());
        Self { reason: "FieldValueDuplicate", ..Self::new(field, message) }
    }

    /// A field whose value is none of those that there are. The value is told to the user.
    pub fn not_supported(
        field: impl Into<String>,
        value: impl fmt::Display,
        supported: impl IntoIterator<Item = impl fmt::Display>,
    ) -> Self {
        let supported: Vec<_> = supported.into_iter().map(|value| format!("{:?}", value.to_string())).collect();
        let message = format!("unsupported value: {:?}: supported values: {}", value.to_string(), supported.join(", "));
        Self { reason: "FieldValueNotSupported", ..Self::new(field, message) }
    }

    /// Path of the field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong with it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The word that Kubernetes has for this kind of problem, such as `FieldValueInvalid`.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl Denial {
    /// The sentence that the user is shown.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// HTTP status code that the user's request ends with.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// The fields it is about.
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// The `reason` that Kubernetes clients branch on, from the code.
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
    /// The request may go on.
    pub fn allow() -> Self {
        Self::default()
    }

    /// The request is refused, with code 400 unless [`code`](Self::code) says otherwise.
    pub fn deny(message: impl Into<String>) -> Self {
        let denial = Denial { message: message.into(), code: 400, causes: Vec::new() };
        Self { denial: Some(denial), ..Self::default() }
    }

    /// Allows when there are no causes, and refuses with 422 (`Invalid`) and a message that lists them when there are:
    /// what the API server itself does with the problems that its own validation found.
    pub fn of(causes: impl IntoIterator<Item = Cause>) -> Self {
        let causes: Vec<Cause> = causes.into_iter().collect();
        if causes.is_empty() {
            return Self::allow();
        }
        let told: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let denial = Denial { message: told.join("; "), code: 422, causes };
        Self { denial: Some(denial), ..Self::default() }
    }

    /// HTTP status code of a denial, 400 to 599; anything else stays 400, since the API server sends no other code for
    /// a refusal. Nothing happens to a verdict that allows.
    pub fn code(mut self, code: u16) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.code = if (400..600).contains(&code) { code } else { 400 };
        }
        self
    }

    /// Names fields that a denial is about. Nothing happens to a verdict that allows.
    pub fn causes(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.causes.extend(causes);
        }
        self
    }

    /// Names a field whose value a denial is about. Nothing happens to a verdict that allows.
    pub fn cause(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.causes.push(Cause::new(field, message));
        }
        self
    }

    /// Tells the user something beside the decision; kubectl prints it as `Warning: …`. Kubernetes keeps 256 characters
    /// of one warning and 4096 of all together: when the answer is written longer ones are cut, and the last one says
    /// how many more there were.
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Adds an annotation to the audit event; the API server puts the webhook's name before the key.
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit.insert(key.into(), value.into());
        self
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// Why the request may not go on.
    pub fn denial(&self) -> Option<&Denial> {
        self.denial.as_ref()
    }

    /// What the user is told beside the decision, uncut.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Annotations for the audit event, without the webhook's name.
    pub fn audit_annotations(&self) -> &BTreeMap<String, String> {
        &self.audit
    }
}
