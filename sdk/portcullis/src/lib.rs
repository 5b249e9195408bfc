//! Admission webhooks, certificates and manifests for operators written with kube.

pub mod interim;
pub mod server;
pub mod webhooks;
