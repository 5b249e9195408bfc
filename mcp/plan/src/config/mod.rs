//! Configurations, whatever their kind: what the plan of a workload takes from them, and the uses that a workload makes
//! of them. The trait of their kinds, and the plan of their own status, are the operator's.
//!
//! A use has a [role](Role). A *guard* protects: a proxy without it must not serve, and the guards that a proxy was
//! made with are written on its pods ([`guards`](crate::guards)). A *setting* shapes: a change of it rolls the
//! Deployment, and one that cannot be used leaves what runs as it is.

mod look_up;
mod part;
mod policies;
mod terms;
mod uses;

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::api::core::v1::EnvVar;
use mcp_runconfig::RunConfig;

use crate::{
    problem::Problem,
    reference::{Data, MountedFile, Reference, SecretVariable, Source},
    settings::Settings,
};

pub(crate) use look_up::{State, Used};
pub use look_up::{UseCondition, Uses};
pub use part::{Misfit, Part};
pub use policies::{PolicyTerms, tried};
pub use terms::Terms;
pub(crate) use uses::SETTING_MISSING;
pub use uses::{ConfigUse, Configs, Origin, Requested, Role, Sessions};

/// The words of workloads' conditions for a configuration that they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The condition's type.
    pub condition: &'static str,
    /// Reason: it can be used.
    pub valid: &'static str,
    /// Reason: it does not exist.
    pub not_found: &'static str,
    /// Reason: its spec breaks a rule.
    pub not_valid: &'static str,
    /// Reason: a Secret, a ConfigMap or a key that it names does not exist.
    pub data_not_found: &'static str,
    /// Reason: what one of those holds cannot be used.
    pub data_not_valid: &'static str,
    /// The name of its CA bundle in a ConfigMap, in messages, for a kind that can have one.
    pub bundle: Option<BundleWords>,
}

/// The name of a CA bundle in a ConfigMap, in the conditions of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleWords {
    /// The condition's type.
    pub condition: &'static str,
    /// Reason: it can be used.
    pub valid: &'static str,
    /// Reason: the ConfigMap or the key does not exist.
    pub not_found: &'static str,
    /// Reason: it is no bundle of certificates.
    pub not_valid: &'static str,
}

/// The workload that uses a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The address at which clients inside the cluster reach it, as its status says.
    pub url: String,
    /// The servers that it stands in front of.
    pub behind: Behind,
    /// Whether those are called in clear text, over a network that is not the pod's.
    pub in_clear_text: bool,
    /// Whether its callers log in.
    pub has_login: bool,
    /// Whether it is a member of a group.
    pub in_group: bool,
    /// The headers that its proxy adds to requests.
    pub added_headers: Vec<String>,
}

/// The servers behind a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behind {
    /// One in a container.
    #[default]
    Container,
    /// One that runs elsewhere.
    Remote,
    /// The servers of a group.
    Group,
}

/// The needs of a proxy for a configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// Files.
    pub files: Vec<MountedFile>,
    /// Texts of ConfigMaps, each by its key, that its document has.
    pub texts: Vec<(Source, String)>,
    /// Variables of its process with values of Secrets.
    pub secrets: Vec<SecretVariable>,
    /// Other variables of its process.
    pub variables: Vec<EnvVar>,
    /// Whether it needs the CA and the token of its pod's ServiceAccount.
    pub account: bool,
}

/// A configuration whose kind does not matter.
pub trait Config: Debug + Send + Sync {
    /// Every rule that it breaks under the operator's settings. With one of them it can never work.
    fn problems(&self, settings: &Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Everything that it refers to.
    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }

    /// The configuration that stands in the texts that it [needs](Self::needs), which exist in `data`; none where it
    /// needs no text.
    ///
    /// # Errors
    /// A text cannot be used: the sentence about it.
    fn read_texts(&self, data: &Data) -> Result<Option<Arc<dyn Config>>, String> {
        let _ = data;
        Ok(None)
    }

    /// Its part in `target`, which uses it as `asked` says.
    fn part(&self, asked: &ConfigUse, target: &Target) -> Part {
        let _ = target;
        Part::of(asked)
    }

    /// The hash of its spec.
    fn hash(&self) -> String;

    /// Lists the needs of `target`'s proxy for it, used on these terms.
    fn needs(&self, target: &Target, terms: &Terms) -> Needs {
        let _ = (target, terms);
        Needs::default()
    }

    /// Puts into the document of the proxy of `target` what it is to do, on these terms.
    fn render(&self, target: &Target, terms: &Terms, document: &mut RunConfig);
}
