//! Paths of fields, and the causes of denials made from them.

use std::fmt;

/// One field that a denial is about; becomes an entry of `status.details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub(crate) field: String,
    pub(crate) message: String,
    pub(crate) reason: &'static str,
}

impl Cause {
    fn new(field: &Field, reason: &'static str, message: impl Into<String>) -> Self {
        Self { field: field.to_string(), message: message.into(), reason }
    }

    /// Returns the path of the field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns what is wrong with the field.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the Kubernetes cause type, such as `FieldValueInvalid`.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

/// The path of a field from the root of the object, written as Kubernetes writes it: `spec.ports[0].name`, and
/// `metadata.labels[app]` for the entry of a map. Its methods make the [`Cause`]s of a denial.
///
/// ```
/// use portcullis_review::{Field, Verdict};
///
/// let ports = ["http", "metrics", "http"];
/// let mut causes = Vec::new();
/// let field = Field::new("spec").field("ports");
/// for (index, name) in ports.iter().enumerate() {
///     if ports[..index].contains(name) {
///         causes.push(field.index(index).field("name").duplicate(name));
///     }
/// }
/// causes.push(Field::new("spec.mode").not_supported("fast", ["safe", "slow"]));
/// causes.push(Field::new("metadata.labels").key("team").required("says who is called at night"));
///
/// let verdict = Verdict::from_causes(causes);
/// assert_eq!(
///     verdict.denial().unwrap().message(),
///     "spec.ports[2].name: duplicate value: \"http\"; \
///      spec.mode: unsupported value: \"fast\": supported values: \"safe\", \"slow\"; \
///      metadata.labels[team]: says who is called at night"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field(String);

impl Field {
    /// Returns the field at a path: `spec`, or a longer one.
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// Returns a member of this object.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// Returns an element of this list, counted from 0.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Returns an entry of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// Reports an invalid value.
    pub fn invalid(&self, message: impl Into<String>) -> Cause {
        Cause::new(self, "FieldValueInvalid", message)
    }

    /// Reports a required field that is missing.
    pub fn required(&self, message: impl Into<String>) -> Cause {
        Cause::new(self, "FieldValueRequired", message)
    }

    /// Reports a field that may not be set, or not changed.
    pub fn forbidden(&self, message: impl Into<String>) -> Cause {
        Cause::new(self, "FieldValueForbidden", message)
    }

    /// Reports a value that must be unique and is used already. The message shows the value to the user.
    pub fn duplicate(&self, value: impl fmt::Display) -> Cause {
        Cause::new(self, "FieldValueDuplicate", format!("duplicate value: {:?}", value.to_string()))
    }

    /// Reports a value that is not one of the supported ones. The message shows the value to the user.
    pub fn not_supported(
        &self,
        value: impl fmt::Display,
        supported: impl IntoIterator<Item = impl fmt::Display>,
    ) -> Cause {
        let supported: Vec<_> = supported.into_iter().map(|value| format!("{:?}", value.to_string())).collect();
        let message = format!("unsupported value: {:?}: supported values: {}", value.to_string(), supported.join(", "));
        Cause::new(self, "FieldValueNotSupported", message)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&Field> for String {
    fn from(field: &Field) -> Self {
        field.0.clone()
    }
}

impl From<Field> for String {
    fn from(field: Field) -> Self {
        field.0
    }
}
