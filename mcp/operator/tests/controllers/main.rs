//! The controllers against a real API server with kube-controller-manager: the operator is its own binary, under the
//! accounts and rights that it generates, which deploy/rbac.yaml ships.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "in a test this is the failure")]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod deaf;
mod deletion;
mod guards;
mod interruption;
mod obstacles;
mod offline;
mod oidc_config;
mod ownership;
mod policy;
mod proxy_rights;
mod recorder;
mod remote_proxy;
mod repair;
mod rest;
mod rollout;
mod secrets;
mod status;
mod tool_config;
mod undecodable;
mod virtual_mcp_server;

use portcullis_testing::{ControlPlane, User};
use tokio::sync::OnceCell;

use support::{Objects, Operator, SoleOwnership, shipped_user};

/// A namespace of the shared control plane, with an operator that watches it.
struct Place {
    cluster: &'static ControlPlane,
    user: User,
    objects: Objects,
    _ownership: SoleOwnership,
}

impl Place {
    async fn new(prefix: &str) -> Self {
        static INSTALLED: OnceCell<()> = OnceCell::const_new();
        let cluster = ControlPlane::shared_with_controllers().await;
        let ownership = SoleOwnership::of(cluster);
        INSTALLED.get_or_init(|| async { cluster.install_crds(&mcp_api::crds()).await }).await;
        let namespace = cluster.namespace(prefix).await;
        let user = shipped_user(cluster, &namespace).await;
        let objects = Objects::new(cluster.admin(), &namespace);
        Self { cluster, user, objects, _ownership: ownership }
    }

    fn operator(&self) -> Operator {
        Operator::start(&self.user, self.namespace())
    }

    fn namespace(&self) -> &str {
        &self.objects.namespace
    }
}
