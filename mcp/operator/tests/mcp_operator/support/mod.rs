//! The tests against a control plane share the operator as its real binary, under the rights it ships with.

mod objects;
mod operator;
mod ownership;
pub(crate) mod pem;

pub(crate) use objects::{
    Objects, auth_server, authz_config, children_of, children_of_remote, every_override, exchange,
    external_auth_config, labelled, minimal, oidc_config, policies, ready_pods, ready_pods_of, reason_of, remote_proxy,
    telemetry_config, tool_config, virtual_server, webhook_config,
};
pub(crate) use operator::{Operator, generated, requests, shipped_user, user_with_less, writes};
pub(crate) use ownership::{SoleOwnership, manager, owned};

use std::{sync::LazyLock, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use portcullis_testing::ControlPlane;
use tokio::sync::OnceCell;

/// Longest wait for anything that happens on its own; a busy machine needs much of it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// The kinds of the API, made once: that takes a while.
pub(crate) static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(mcp_api::crds);

/// The control plane of these tests, with kube-controller-manager and the kinds of the API.
pub(crate) async fn cluster() -> &'static ControlPlane {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let cluster = ControlPlane::shared_with_controller_manager().await;
    INSTALLED.get_or_init(|| async { cluster.install_crds(&CRDS).await }).await;
    cluster
}
