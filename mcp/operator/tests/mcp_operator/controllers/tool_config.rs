//! M2, O4 for MCPToolConfig: who refers to it, what it says, and when it goes.

use kube::{Api, api::DeleteParams};
use mcp_api::v1beta1::{MCPServer, MCPToolConfig};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, labelled, reason_of, tool_config},
};

const API_VERSION: &str = "toolhive.stacklok.dev/v1beta1";

fn refers(name: &str) -> Value {
    labelled(name, json!({"toolConfigRef": {"name": "tools"}}))
}

fn configs(place: &Place) -> Api<MCPToolConfig> {
    place.objects.api()
}

fn servers<'a>(names: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    names.iter().map(|name| ("MCPServer", *name)).collect()
}

fn validated<'a>(server: &'a MCPServer, status: &str) -> Option<&'a str> {
    reason_of(server, "ToolConfigValidated", status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_referenced_tool_config_blocks_and_goes_through_when_the_last_reference_goes() {
    let place = Place::new("tools-referenced").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(tool_config("tools", json!({"toolsFilter": ["fetch"]}))).await;
    let config = objects.referenced("MCPToolConfig", "tools", &servers(&[])).await;
    assert_eq!(config.metadata.finalizers, Some(vec!["toolhive.stacklok.dev/toolconfig-finalizer".to_owned()]));
    objects.create(refers("second")).await;
    objects.create(refers("first")).await;
    objects.referenced("MCPToolConfig", "tools", &servers(&["first", "second"])).await;

    configs(&place).delete("tools", &DeleteParams::default()).await.unwrap();
    let blocked = |config: &MCPToolConfig| {
        let mut conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|it| {
            (&*it.type_, &*it.status) == ("DeletionBlocked", "True")
                && it.message == "Cannot delete: referenced by MCPServers: first, second"
        })
    };
    wait_for_object(&configs(&place), "tools", "DeletionBlocked", DEADLINE, blocked).await;
    // One server lets go by an edit, the other by its own deletion.
    objects.edit("first", json!({"toolConfigRef": null})).await;
    objects.referenced("MCPToolConfig", "tools", &servers(&["second"])).await;
    objects.servers().delete("second", &DeleteParams::default()).await.unwrap();
    wait_until("the configuration to go", DEADLINE, || async {
        configs(&place).get_opt("tools").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(objects.events("MCPToolConfig", "tools").await.contains(&"Warning DeletionBlocked".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_names_a_tool_config_says_what_is_wrong_with_it_and_gets_its_proxy_once_nothing_is() {
    let place = Place::new("tools-status").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(refers("web")).await;
    let says = |status: &'static str, reason: &'static str| {
        move |server: &MCPServer| validated(server, status) == Some(reason)
    };
    let missing = objects.server("web", "ToolConfigNotFound", says("False", "ToolConfigNotFound")).await;
    assert_eq!(missing.status.unwrap().tool_config_hash, None);

    objects.phase("web", "Failed").await;
    for kind in [ChildKind::Deployment, ChildKind::StatefulSet] {
        assert!(objects.get(kind, "web").await.is_null(), "{kind:?}");
    }

    // What it waits for wakes it.
    objects.create(tool_config("tools", json!({"toolsFilter": ["fetch", ""]}))).await;
    objects.server("web", "ToolConfigNotValid", says("False", "ToolConfigNotValid")).await;
    let mut hashes = Vec::new();
    for tool in ["fetch", "other"] {
        let edit = json!({"spec": {"toolsFilter": [tool]}});
        objects.merge(API_VERSION, "MCPToolConfig", "tools", edit).await;
        let last = hashes.last().cloned().flatten();
        let server = objects
            .server("web", "another toolConfigHash", |server| {
                let hash = server.status.as_ref().and_then(|status| status.tool_config_hash.clone());
                validated(server, "True") == Some("ToolConfigValid") && hash.is_some() && hash != last
            })
            .await;
        operator.idle(place.cluster).await;
        let status = configs(&place).get("tools").await.unwrap().status.unwrap();
        hashes.push(server.status.unwrap().tool_config_hash);
        assert_eq!(status.config_hash, *hashes.last().unwrap(), "on both sides");
    }
    objects.child(ChildKind::Deployment, "web", "to come", |it| !it.is_null()).await;
    let events = objects.events("MCPServer", "web").await;
    assert!(!events.contains(&"Warning GuardNotBuilt".to_owned()), "{events:?}");
}
