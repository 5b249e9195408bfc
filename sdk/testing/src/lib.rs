//! A real Kubernetes control plane (etcd and kube-apiserver) for tests of operators and webhooks.
