//! Whether the proxy that runs has the guard that is asked for.

use k8s_openapi::api::apps::v1::Deployment;

use super::{gate::Gate, names};

/// What a live proxy enforces, compared with what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// There is no proxy.
    NoProxy,
    /// It enforces what is asked for, as far as that can be told.
    Enforced,
    /// It enforces an older content of the configuration that is asked for.
    Outdated,
    /// It enforces nothing, or another configuration.
    Missing,
}

impl Guard {
    pub(super) fn of(deployment: Option<&Deployment>, gate: &Gate) -> Self {
        let Some(deployment) = deployment else { return Self::NoProxy };
        let live = deployment.metadata.annotations.as_ref().and_then(|all| all.get(names::GATE));
        let live = live.and_then(|value| value.split_once('/'));
        match (gate, live) {
            (Gate::Open, _) => Self::Enforced,
            (Gate::Ready(asked), Some((config, hash))) if asked.config == config => {
                if asked.hash == hash {
                    Self::Enforced
                } else {
                    Self::Outdated
                }
            }
            (Gate::Broken(asked), Some((config, _))) if asked.config == config => Self::Enforced,
            _ => Self::Missing,
        }
    }
}
