//! Admission webhooks, certificates and manifests for operators written with kube.

pub mod certificates;
pub mod operator;
pub mod server;
pub mod webhooks;
