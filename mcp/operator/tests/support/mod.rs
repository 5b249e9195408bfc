//! What the tests against a control plane share: the operator as its real binary, under the rights it ships with.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod objects;
mod operator;
mod ownership;
pub(crate) mod pem;

pub(crate) use objects::{
    Objects, children_of, children_of_remote, every_override, labelled, minimal, oidc_config, ready_pods,
    ready_pods_of, remote_proxy, tool_config, virtual_server, webhook_config,
};
pub(crate) use operator::{Operator, generated, requests, shipped_user, user_with_less, writes};
pub(crate) use ownership::{IMPOSTOR, SoleOwnership, oversteps, owned};

use std::time::Duration;

/// Longest wait for anything that happens on its own; a busy machine needs much of it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);
