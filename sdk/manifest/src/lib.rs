//! Manifests that install an operator: webhook configurations, admission policies, conversion stanzas of CRDs, RBAC,
//! the Deployment with its Service and policies, and cert-manager's objects; with the feature `yaml` (on by default) as
//! YAML.
//!
//! Everything is computed from values: no IO, no clock, and the same input gives the same bytes. `portcullis-webhook`
//! fills each [`Webhook`] from its registration, so that the served routes and the generated configurations cannot
//! drift apart.
//!
//! ```
//! use portcullis_manifest::{Operation, Rule, ScopeType, ServiceRef, Webhook, WebhookKind, to_yaml, validating_configuration};
//!
//! let rule = Rule {
//!     groups: vec!["demo.example".into()],
//!     versions: vec!["v1".into()],
//!     resources: vec!["entities".into()],
//!     scope: ScopeType::Namespaced,
//!     operations: vec![Operation::Create, Operation::Update],
//! };
//! let webhook = Webhook::new("username.entities.demo.example", WebhookKind::Validating, "/validate/username", vec![rule]);
//! let service = ServiceRef { namespace: "demo".into(), name: "entity-operator-webhook".into(), port: 443 };
//! let configuration = validating_configuration("entity-operator-validating", &[webhook], &service);
//! let yaml = to_yaml(&[serde_json::to_value(configuration)?])?;
//! assert!(yaml.contains("failurePolicy: Fail"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod cert_manager;
mod configuration;
mod crd;
mod deadlock;
mod deletion;
mod installation;
mod known_scope;
mod kustomization;
mod labels;
pub mod messages;
pub mod names;
mod overrides;
mod policy;
mod rbac;
mod scope_policy;
mod source;
mod trust;
mod webhook;

mod workload;
#[cfg(feature = "yaml")]
mod yaml;

pub use cert_manager::{INJECT_CA_FROM, IssuedCertificate, IssuerRef};
pub use configuration::{ServiceRef, mutating_configuration, validating_configuration};
pub use crd::{with_conversion, without_conversion};
pub use deadlock::{Deadlock, NAMESPACE_NAME};
pub use deletion::{MAX_MATCH_CONDITIONS, exempts_finalizer_removal};
pub use installation::{CertificateMode, Configurations, Installation, Switch};
/// A CEL expression over `object`, `oldObject`, `request` and `authorizer`, which decides whether a webhook is called.
pub use k8s_openapi::api::admissionregistration::v1::MatchCondition;
pub use known_scope::KnownScope;
pub use kustomization::kustomization;
pub use labels::Labels;
pub use overrides::Overrides;
pub use policy::admission_policies;
/// The operation of a rule, and of an admission review.
pub use portcullis_review::Operation;
pub use rbac::{Access, Account, named_policy_rule, policy_rule};
pub use scope_policy::{ScopePolicy, scope_policy_name};
pub use source::Source;
pub use trust::Trust;
pub use webhook::{
    CelRule, FailurePolicy, MatchPolicy, ReinvocationPolicy, Rule, ScopeType, SideEffects, Webhook, WebhookKind,
};
pub use workload::{ALLOCATOR_ENV, Workload};
#[cfg(feature = "yaml")]
pub use yaml::{YamlError, to_yaml};
