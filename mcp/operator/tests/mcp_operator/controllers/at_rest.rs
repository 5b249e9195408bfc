//! R3, R4: zero writes in the steady state.

use std::time::Duration;

use kube::api::ListParams;
use mcp_plan::workload::ChildKind;
use serde_json::json;

use super::{
    Place,
    support::{
        CRDS, authz_config, children_of, children_of_remote, every_override, exchange, external_auth_config, labelled,
        minimal, oidc_config, policies, ready_pods, ready_pods_of, remote_proxy, telemetry_config, tool_config,
        virtual_server, writes,
    },
};

const PERMIT_ALL: &str = "permit(principal, action, resource);";

/// At rest: the one look at what no queue knows of beforehand, for every kind. The other tests wait until the operator is
/// idle.
const REST: Duration = Duration::from_secs(30);

/// R3, R4, O5: with the shipped rights one of every kind, an MCPServer with every override set among them, reaches its
/// children; then the operator writes nothing: at rest, also with pods that never become ready, after a foreign client
/// labelled and annotated every child, and after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_every_kind_is_made_and_then_nothing_is_written() {
    let place = Place::new("rest").await;
    let operator = place.operator();
    let objects = &place.objects;
    for object in every_override("full") {
        objects.create(object).await;
    }
    objects.create(minimal("plain")).await;
    objects.create(oidc_config("idp", json!({}))).await;
    objects.create(tool_config("tools", json!({"toolsFilter": ["fetch"]}))).await;
    objects.create(telemetry_config("traces", json!({}))).await;
    objects.create(authz_config("rules", &[PERMIT_ALL])).await;
    objects.create(external_auth_config("none", json!({"type": "unauthenticated"}))).await;
    objects.create(policies("rules", &[PERMIT_ALL])).await;
    let key = json!({"name": "full-keys", "key": "token"});
    let tokens = exchange(json!({"clientId": "c", "clientSecretRef": key}));
    objects.create(external_auth_config("tokens", tokens)).await;
    let authz = json!({"type": "configMap", "configMap": {"name": "rules"}});
    let policed = json!({"authzConfig": authz, "externalAuthConfigRef": {"name": "tokens"}});
    objects.create(labelled("policed", policed)).await;
    let configs = json!({
        "oidcConfigRef": {"name": "idp", "audience": "far"}, "toolConfigRef": {"name": "tools"},
        "telemetryConfigRef": {"name": "traces"}, "authzConfigRef": {"name": "rules"},
        "externalAuthConfigRef": {"name": "none"},
    });
    objects.create(remote_proxy("far", configs)).await;
    objects.create(virtual_server("all", "idp", "tools")).await;
    for spec in CRDS.iter().map(|crd| &crd.spec) {
        let stored = spec.versions.iter().find(|version| version.storage).unwrap();
        let (version, kind) = (format!("{}/{}", spec.group, stored.name), &spec.names.kind);
        let found = objects.dynamic(&version, kind).list(&ListParams::default()).await.unwrap();
        assert!(!found.items.is_empty(), "there is no {kind}: it is to rest like all others");
    }
    let mut children = children_of("full");
    children.extend(children_of("plain"));
    children.extend(children_of("policed"));
    children.extend(children_of_remote("far"));
    objects.has_children("all of them", &children).await;
    objects.phase("full", "Pending").await;
    ready_pods(objects, "plain").await;
    ready_pods_of(objects, "mcpremoteproxy", "far").await;
    objects.phase("plain", "Ready").await;

    let since = operator.idle(place.cluster).await;
    tokio::time::sleep(REST).await;
    operator.wrote_nothing(place.cluster, since, "at rest, with pods that never become ready").await;

    let since = place.cluster.audit().mark();
    for (kind, name) in &children {
        let resource = kind.api_resource();
        let mark = json!({"metadata": {"labels": {"foreign": "yes"}, "annotations": {"foreign.example/seen": "yes"}}});
        objects.merge(&resource.api_version, &resource.kind, name, mark).await;
    }
    operator.wrote_nothing(place.cluster, since, "after foreign labels and annotations").await;

    operator.terminate().await;
    let since = place.cluster.audit().mark();
    let operator = place.operator();
    operator.wrote_nothing(place.cluster, since, "after a restart").await;

    // Foreign keys survive, also a write of ours.
    objects.edit("full", json!({"args": ["--other"], "proxyPort": 8091})).await;
    objects
        .child(ChildKind::Service, "mcp-full-proxy", "the new port", |service| {
            service["spec"]["ports"][0]["port"] == 8091
        })
        .await;
    operator.idle(place.cluster).await;
    for (kind, name) in &children {
        let child = objects.get(*kind, name).await;
        assert_eq!(child["metadata"]["labels"]["foreign"], "yes", "{kind:?} {name}");
        assert_eq!(child["metadata"]["annotations"]["foreign.example/seen"], "yes", "{kind:?} {name}");
    }
}

/// The goal of at most 15 writes per server until quiet, every child and event counted: on a busy machine, pods come so late
/// that some servers tell of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_costs_at_most_fifteen_writes_until_it_is_ready_and_quiet() {
    const SERVERS: usize = 12;
    let place = Place::new("cost").await;
    let operator = place.operator();
    operator.reconciles().await;
    let since = place.cluster.audit().mark();
    let name = |index: usize| format!("s{index}");
    for index in 0..SERVERS {
        let mut server = minimal(&name(index));
        if index % 3 == 0 {
            server["spec"]["transport"] = json!("stdio");
        }
        place.objects.create(server).await;
    }
    for index in 0..SERVERS {
        ready_pods(&place.objects, &name(index)).await;
    }
    for index in 0..SERVERS {
        place.objects.phase(&name(index), "Ready").await;
    }
    operator.idle(place.cluster).await;
    let written = writes(place.cluster, &place.user, since).await;
    let most = 15 * SERVERS;

    assert!(written.len() <= most, "{} writes, at most {most}:\n{}", written.len(), written.join("\n"));
}
