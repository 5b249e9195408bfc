//! Tests of operators and webhooks: reviews in the process, laws for mutations and converters, and a real Kubernetes
//! control plane.
//!
//! | you want to know whether | look at |
//! |---|---|
//! | a webhook validates and mutates as it should | [`admission::Reviews`], in the process, in microseconds |
//! | a mutating webhook is idempotent | [`admission::assert_idempotent`] |
//! | converters lose nothing and undo nothing | [`conversion::assert_laws`], on objects generated from the CRD's schemas |
//! | the API server, your manifests and your rights agree | [`ControlPlane`], a real one, with the operator's binary in it: [`OperatorBinary`] |
//! | something is done in time, also on a machine that stalls | [`Stopwatch`] |
//!
//! The control plane and all that acts on it is behind the feature `control-plane`, which brings a client of the API
//! server. The rest needs none.
//!
//! # A control plane
//!
//! etcd, kube-apiserver and, where asked, kube-controller-manager, started in about three seconds on free loopback
//! ports. No container engine, no cluster.
//!
//! The binaries are looked up in `KUBEBUILDER_ASSETS`, then in the per-user cache that `make control-plane` fills, then
//! where `setup-envtest use` puts them (the newest version; it has no kube-controller-manager); when they are missing,
//! the error says how to install them. However the test process ends, SIGKILL included, the servers end too and their
//! directory is removed.
//!
//! [`CertManager`] is the real cert-manager beside it (`make cert-manager`): it issues from CA and self-signed Issuers
//! and fills in CA bundles.
//!
//! # A first test
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use kube::api::PostParams;
//! use portcullis_testing::{ControlPlane, Grant, wait_until};
//! use std::time::Duration;
//!
//! #[tokio::test]
//! async fn the_operator_writes_its_config_map_once() {
//!     let cluster = ControlPlane::shared().await; // one for all tests of this file
//!     let namespace = cluster.namespace("demo").await; // one for this test
//!     let rules = my_operator_rules();
//!     let operator = cluster.user_with("my-operator", &[Grant::Rules { namespace: &namespace, rules: &rules }]).await;
//!
//!     let mark = cluster.audit().mark();
//!     let maps: Api<ConfigMap> = Api::namespaced(operator.client.clone(), &namespace);
//!     let mut map = ConfigMap::default();
//!     map.metadata.name = Some("settings".into());
//!     maps.create(&PostParams::default(), &map).await.unwrap();
//!
//!     wait_until("the config map", Duration::from_secs(5), || async { maps.get_opt("settings").await.unwrap() }).await;
//!     assert_eq!(cluster.audit().writes_by(&operator.name, mark).await.len(), 1);
//! }
//! # fn my_operator_rules() -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> { Vec::new() }
//! ```
//!
//! # Webhooks
//!
//! [`ControlPlane::install_webhooks`] applies generated webhook configurations as they are, but for the service port,
//! and routes their Services to this process: kube-apiserver calls the webhook server inside the test with the real
//! server name, and checks its certificate against the real CA bundle.
//!
//! # An operator's binary
//!
//! [`OperatorBinary`] installs the manifests that the binary generates, runs it under its own ServiceAccount, and
//! returns when the API server calls its webhooks.
//!
//! # Outside of tests
//!
//! A demo uses [`ControlPlane::builder`], hands out [`ControlPlane::kubeconfig_path`], and ends with
//! [`ControlPlane::stop`]. Helpers that act on the cluster panic with a message that says what was attempted.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
pub mod admission;
#[cfg(feature = "control-plane")]
mod control_plane;
pub mod conversion;
mod difference;
mod log;
mod stopwatch;
mod wait;

pub use address::free_address;
#[cfg(feature = "control-plane")]
pub use control_plane::{
    AuditEvent, AuditLog, Builder, CERT_MANAGER_VERSION, CertManager, ControlPlane, ControlPlaneError, Grant,
    KUBERNETES_VERSION, Mark, OperatorBinary, RunningOperator, User, apply_manifests, wait_for_object,
};
pub use log::Log;
pub use stopwatch::Stopwatch;
pub use wait::wait_until;
