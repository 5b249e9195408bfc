//! A value of a Secret as an environment variable of the proxy.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};

use super::Content;

/// A value of a Secret as an environment variable of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretVariable {
    /// Name of the variable.
    pub name: Cow<'static, str>,
    /// The Secret.
    pub secret: String,
    /// The key of its data.
    pub key: String,
    /// The use of the value.
    pub content: Content,
}

impl SecretVariable {
    /// The variable of a container.
    pub fn variable(&self) -> EnvVar {
        let source = SecretKeySelector { name: self.secret.clone(), key: self.key.clone(), optional: None };
        let value_from = Some(EnvVarSource { secret_key_ref: Some(source), ..EnvVarSource::default() });
        EnvVar { name: self.name.clone().into_owned(), value_from, ..EnvVar::default() }
    }
}
