//! The controllers against a real API server with kube-controller-manager: the operator is its own binary, under the
//! account and rights that it generates, which deploy/rbac.yaml ships.

mod at_rest;
mod audit;
mod authorization;
mod backend;
mod deletion;
mod detached;
mod external_auth_config;
mod guards;
mod interruption;
mod obstacles;
mod offline;
mod oidc_config;
mod ownership;
mod policy;
mod proxy_container;
mod proxy_rights;
mod recorder;
mod remote_proxy;
mod repair;
mod replicas;
mod rollout;
mod secrets;
mod shadows;
mod side_doors;
mod status;
mod telemetry_config;
mod tool_config;
mod toolhive;
mod undecodable;
mod virtual_mcp_server;

use portcullis_testing::{ControlPlane, User};

use crate::support::{self, Objects, Operator, SoleOwnership, cluster, shipped_user};

/// A namespace of the shared control plane, with an operator that watches it.
struct Place {
    cluster: &'static ControlPlane,
    user: User,
    objects: Objects,
    _ownership: SoleOwnership,
}

impl Place {
    async fn new(prefix: &str) -> Self {
        let cluster = cluster().await;
        let ownership = SoleOwnership::of(cluster);
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
