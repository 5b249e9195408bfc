//! Tests on a cluster of one real node, which `make e2e` (or `make node-up`) brings up: namespaces that print what
//! happened in them when a test fails, and pods that call what the test installs.

#![allow(clippy::panic, clippy::print_stderr, reason = "helpers of tests fail and print as tests do")]

mod client_pod;
pub mod greeter;
mod namespace;
mod node;
mod operator;
mod redis;

pub use client_pod::{Call, Caller, Calls, Outcome};
pub use namespace::Namespace;
pub use node::{DEADLINE, EVERYTHING_IMAGE, KUBECONFIG, KUBECTL, Node, POD_IMAGE, kubectl, kubectl_in, try_kubectl};
pub use operator::{
    OPERATOR_NAMESPACE, RELEASE, former_chart, helm, install_operator, operator_pods, reached, release, uninstall,
    uninstall_operator,
};
pub use redis::Redis;
