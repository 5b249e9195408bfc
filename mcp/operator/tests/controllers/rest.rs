//! R3: zero writes in the steady state.

use std::time::Duration;

use mcp_plan::workload::ChildKind;
use serde_json::json;

use crate::{
    Place,
    support::{children_of, every_override, minimal, ready_pods, writes},
};

/// At rest, as the promise says.
const REST: Duration = Duration::from_secs(30);
/// After a disturbance.
const WINDOW: Duration = Duration::from_secs(8);

/// R3, O5: with the shipped rights an MCPServer with every override set reaches its children; then the operator writes
/// nothing: at rest, also with pods that never become ready, after a foreign client labelled and annotated every child,
/// and after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_every_override_reaches_its_children_and_then_nothing_is_written() {
    let place = Place::new("rest").await;
    let operator = place.operator();
    for object in every_override("full") {
        place.objects.create(object).await;
    }
    place.objects.create(minimal("plain")).await;
    let mut children = children_of("full");
    children.extend(children_of("plain"));
    place.objects.has_children("both", &children).await;
    place.objects.phase("full", "Pending").await;
    ready_pods(&place.objects, "plain").await;
    place.objects.phase("plain", "Ready").await;

    let since = operator.idle(place.cluster).await;
    operator.wrote_nothing(place.cluster, since, "at rest, with pods that never become ready").await;

    let since = place.cluster.audit().mark();
    for (kind, name) in &children {
        let resource = kind.api_resource();
        let mark = json!({"metadata": {"labels": {"foreign": "yes"}, "annotations": {"foreign.example/seen": "yes"}}});
        place.objects.merge(&resource.api_version, &resource.kind, name, mark).await;
    }
    operator.wrote_nothing(place.cluster, since, "after foreign labels and annotations").await;

    operator.terminate().await;
    let since = place.cluster.audit().mark();
    let operator = place.operator();
    operator.reconciles().await;
    operator.wrote_nothing(place.cluster, since, "after a restart").await;

    // Foreign keys survive, also a write of ours.
    place.objects.edit("full", json!({"args": ["--other"], "proxyPort": 8091})).await;
    place
        .objects
        .child(ChildKind::Service, "mcp-full-proxy", "the new port", |service| {
            service["spec"]["ports"][0]["port"] == 8091
        })
        .await;
    operator.idle(place.cluster).await;
    for (kind, name) in &children {
        let child = place.objects.get(*kind, name).await;
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
