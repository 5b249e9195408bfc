//! Webhook configurations, CRDs and RBAC as Kubernetes manifests. No IO.
