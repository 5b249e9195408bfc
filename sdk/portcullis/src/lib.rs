//! Admission webhooks, certificates and manifests for operators written with kube.

pub mod server;
pub mod webhooks;
