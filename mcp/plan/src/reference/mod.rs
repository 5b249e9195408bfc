//! Which object names which: from a workload or a configuration to configurations, groups, Secrets and ConfigMaps of
//! its own namespace.
//!
//! Each kind says once what it refers to. The index of the stores, the wake-ups, the referrers in a status, the block
//! of a deletion and the warnings at admission all follow from that.

pub mod bundle;
mod content;
mod data;
mod missing;
mod mounted_file;
mod secret_variable;

use std::borrow::Cow;

use kube_core::Resource;
use mcp_api::v1beta1::SecretKeyRef;

pub use content::{Content, Entries, Entry};
pub use data::{Data, Needed, Source};
pub use missing::missing;
pub use mounted_file::MountedFile;
pub use secret_variable::SecretVariable;

/// The kind `Secret` of core/v1.
pub const SECRET: &str = "Secret";
/// The kind `ConfigMap` of core/v1.
pub const CONFIG_MAP: &str = "ConfigMap";

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The kind of what is named.
    pub kind: Cow<'static, str>,
    /// The name.
    pub name: String,
    /// The key of it that is named; empty where none is.
    pub key: String,
    /// The field that names it, such as `spec.secrets[0]`.
    pub field: Cow<'static, str>,
    /// The consequence while it does not exist: the end of a sentence.
    pub while_missing: &'static str,
    /// Whether its texts are read, and not only digests of them. No text of a Secret is.
    pub is_text: bool,
}

/// An object that refers to another one of its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Referrer {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl Reference {
    /// A reference to an object of the kind `K`.
    pub fn to<K: Resource<DynamicType = ()>>(
        field: impl Into<Cow<'static, str>>,
        name: &str,
        while_missing: &'static str,
    ) -> Self {
        Self::new(K::kind(&()), name, field, while_missing)
    }

    /// A reference to a Secret, which pods mount or take as environment.
    pub fn to_secret(field: impl Into<Cow<'static, str>>, name: &str) -> Self {
        Self::new(SECRET, name, field, "pods wait for it")
    }

    /// A reference to what the proxy of a workload cannot do without.
    pub fn of_proxy(field: impl Into<Cow<'static, str>>, kind: impl Into<Cow<'static, str>>, name: &str) -> Self {
        Self::new(kind, name, field, "without it the server gets no proxy")
    }

    /// A reference of a workload to a ConfigMap with a text that its proxy's document has.
    pub fn to_text(field: impl Into<Cow<'static, str>>, config_map: &str) -> Self {
        Self { is_text: true, ..Self::of_proxy(field, CONFIG_MAP, config_map) }
    }

    /// A reference to a Secret or ConfigMap without which a configuration guards nothing.
    pub fn to_source(field: impl Into<Cow<'static, str>>, source: &Source) -> Self {
        Self::new(source.kind(), source.name(), field, "without it the workloads that refer to this get no proxy")
    }

    /// A reference to a Secret of a webhook that is only tried.
    pub fn to_tried(field: impl Into<Cow<'static, str>>, SecretKeyRef { name, key }: &SecretKeyRef) -> Self {
        Self::new(SECRET, name, field, "until it does, calls of this shadow fail").with_key(key)
    }

    /// Refers to a key of a Secret without which a configuration guards nothing.
    pub fn to_key(field: impl Into<Cow<'static, str>>, SecretKeyRef { name, key }: &SecretKeyRef) -> Self {
        Self::to_source(field, &Source::Secret(name.clone())).with_key(key)
    }

    /// Refers to the content of a file of the proxy.
    pub fn to_file(field: impl Into<Cow<'static, str>>, file: &MountedFile) -> Self {
        Self::to_source(field, &file.source).with_key(&file.key)
    }

    /// A reference to a kind that this version does not have.
    pub fn unbuilt(kind: &'static str, field: &'static str, name: &str) -> Self {
        Self::new(kind, name, field, "")
    }

    fn new(
        kind: impl Into<Cow<'static, str>>,
        name: &str,
        field: impl Into<Cow<'static, str>>,
        while_missing: &'static str,
    ) -> Self {
        let (kind, field) = (kind.into(), field.into());
        Self { kind, name: name.to_owned(), key: String::new(), field, while_missing, is_text: false }
    }

    /// Names one key of the object.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self }
    }

    /// The Secret or ConfigMap that it names, if it names one.
    pub fn source(&self) -> Option<Source> {
        match &*self.kind {
            SECRET => Some(Source::Secret(self.name.clone())),
            CONFIG_MAP => Some(Source::ConfigMap(self.name.clone())),
            _ => None,
        }
    }

    /// The value that it names, for this use; none where it names no key.
    pub fn value(&self, content: Content) -> Option<Needed> {
        let source = self.source().filter(|_| !self.key.is_empty())?;
        Some(Needed { field: self.field.clone(), source, key: self.key.clone(), content })
    }

    /// The token by which a store finds its holder.
    pub fn token(&self) -> String {
        token(&self.kind, &self.name)
    }
}

/// The problem of a reference to this key of the Secret of this name, whether the Secret exists or not.
pub fn incomplete_key(secret: &str, key: &str) -> Option<&'static str> {
    (secret.is_empty() || key.is_empty()).then_some("names no Secret or no key of it; set both")
}

/// The token by which a store finds the objects that refer to this one.
pub fn token(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}
