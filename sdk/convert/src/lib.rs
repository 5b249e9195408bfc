//! Conversion of Kubernetes objects between the versions of their kind.
