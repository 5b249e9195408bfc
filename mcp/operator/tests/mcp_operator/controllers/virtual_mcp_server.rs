//! VirtualMCPServer: its references come and go, in its own status and in that of what it refers to.

use kube::{Api, api::DeleteParams};
use mcp_api::v1beta1::{MCPOIDCConfig, MCPToolConfig, VirtualMCPServer};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::json;

use super::{
    Place,
    support::{DEADLINE, labelled, oidc_config, tool_config, virtual_server},
};

const API_VERSION: &str = "toolhive.stacklok.dev/v1beta1";
const KIND: &str = "VirtualMCPServer";

async fn says(place: &Place, name: &str, condition: &str, reason: &str) -> VirtualMCPServer {
    let api: Api<VirtualMCPServer> = place.objects.api();
    wait_for_object(&api, name, &format!("{condition} {reason}"), DEADLINE, |server| {
        let mut conditions = server.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|it| it.type_ == condition && it.reason == reason)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_of_a_virtual_server_come_and_go_on_both_sides_and_nothing_is_made_for_it() {
    let place = Place::new("virtual").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(virtual_server("all", "idp", "tools")).await;
    says(&place, "all", "OIDCConfigRefValidated", "OIDCConfigRefNotFound").await;
    says(&place, "all", "ToolConfigValidated", "ToolConfigNotFound").await;
    says(&place, "all", "GroupRefValidated", "KindNotBuilt").await;

    // What it waits for wakes it, and knows of it.
    objects.create(tool_config("tools", json!({"toolsFilter": ["fetch"]}))).await;
    for name in ["idp", "other"] {
        objects.create(oidc_config(name, json!({}))).await;
    }
    says(&place, "all", "ToolConfigValidated", "ToolConfigValid").await;
    let server = says(&place, "all", "OIDCConfigRefValidated", "OIDCConfigRefValid").await;
    objects.referenced("MCPOIDCConfig", "idp", &[(KIND, "all")]).await;
    objects.referenced("MCPToolConfig", "tools", &[(KIND, "all")]).await;
    let configs: Api<MCPOIDCConfig> = objects.api();
    let hash = configs.get("idp").await.unwrap().status.unwrap().config_hash;
    let status = server.status.unwrap();
    assert_eq!((status.oidc_config_hash.is_some(), status.oidc_config_hash), (true, hash));
    says(&place, "all", "Ready", "DeploymentNotBuilt").await;

    // Beside another workload kind, re-pointed, and deleted.
    let tooled = json!({"toolConfigRef": {"name": "tools"}});
    objects.create(labelled("web", tooled)).await;
    objects.referenced("MCPToolConfig", "tools", &[("MCPServer", "web"), (KIND, "all")]).await;
    let other = json!({"spec": {"incomingAuth": {"oidcConfigRef": {"name": "other"}}}});
    objects.merge(API_VERSION, KIND, "all", other).await;
    objects.referenced("MCPOIDCConfig", "other", &[(KIND, "all")]).await;
    objects.referenced("MCPOIDCConfig", "idp", &[]).await;

    // A deletion waits for it, and goes through the moment it is gone.
    configs.delete("other", &DeleteParams::default()).await.unwrap();
    wait_for_object(&configs, "other", "DeletionBlocked", DEADLINE, |config| {
        let mut conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|it| it.type_ == "DeletionBlocked" && it.message.contains("VirtualMCPServers: all"))
    })
    .await;
    objects.api::<VirtualMCPServer>().delete("all", &DeleteParams::default()).await.unwrap();
    wait_until("the configuration to go", DEADLINE, || async {
        configs.get_opt("other").await.unwrap().is_none().then_some(())
    })
    .await;
    objects.referenced("MCPToolConfig", "tools", &[("MCPServer", "web")]).await;
    let tools: Api<MCPToolConfig> = objects.api();
    assert!(tools.get("tools").await.unwrap().metadata.deletion_timestamp.is_none());
    for kind in ChildKind::ALL {
        assert!(objects.get(kind, "all").await.is_null(), "{kind:?}");
    }
}
