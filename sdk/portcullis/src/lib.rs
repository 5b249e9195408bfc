//! Admission webhooks, certificates and manifests for operators written with kube.
