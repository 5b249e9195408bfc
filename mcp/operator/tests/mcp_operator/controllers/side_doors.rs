//! Security S20: a way around a proxy shows in the status, whoever opened it.

use kube::api::{DeleteParams, Patch, PatchParams};
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::{
    Place,
    support::{children_of, labelled, minimal},
};

/// Waits until the server's `NetworkRestricted` has this reason, or is not there.
async fn restricted(place: &Place, server: &str, reason: Option<&str>) {
    let what = format!("NetworkRestricted because of {reason:?}");
    let told = place.objects.server(server, &what, |it| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions).flatten();
        let mut found = conditions.filter(|condition| condition.type_ == "NetworkRestricted");
        let found = found.next().map(|condition| (&*condition.status, &*condition.reason));
        it.status.is_some() && found == reason.map(|reason| ("False", reason))
    });
    told.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_way_around_the_proxy_is_told_in_the_status() {
    let place = Place::new("side-doors").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    // Its policy has no rules, so that rules of others are not ours to take back.
    objects.create(labelled("stdio", json!({"transport": "stdio", "mcpPort": null}))).await;
    objects.has_children("web", &children_of("web")).await;
    objects.child(ChildKind::StatefulSet, "stdio", "to exist", |set| !set.is_null()).await;
    operator.idle(place.cluster).await;
    restricted(&place, "web", None).await;
    restricted(&place, "stdio", None).await;

    let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let everybody = json!({"spec": {"ingress": [{}]}});
    objects.merge("networking.k8s.io/v1", "NetworkPolicy", "mcp-stdio", everybody.clone()).await;
    restricted(&place, "stdio", Some("NetworkPolicyChanged")).await;
    objects.merge("networking.k8s.io/v1", "NetworkPolicy", "mcp-stdio", json!({"spec": {"ingress": null}})).await;
    restricted(&place, "stdio", None).await;

    for (kind, name) in [("StatefulSet", "web"), ("Deployment", "web")] {
        objects.merge("apps/v1", kind, name, pod(json!({"hostNetwork": true}))).await;
        restricted(&place, "web", Some("HostNetwork")).await;
        objects.merge("apps/v1", kind, name, pod(json!({"hostNetwork": null}))).await;
        restricted(&place, "web", None).await;
    }
    let container =
        json!({"containers": [{"name": "mcp", "image": "x", "ports": [{"containerPort": 9, "hostPort": 9}]}]});
    let other = PatchParams::apply("somebody-else").force();
    let mut set = pod(json!(container));
    set["apiVersion"] = json!("apps/v1");
    set["kind"] = json!("StatefulSet");
    objects.children(ChildKind::StatefulSet).patch("web", &other, &Patch::Apply(set)).await.unwrap();
    restricted(&place, "web", Some("HostPort")).await;

    // Its own rules come back, and a policy that was deleted too.
    objects.merge("networking.k8s.io/v1", "NetworkPolicy", "mcp-web", everybody).await;
    let ours = |policy: &Value| policy["spec"]["ingress"][0]["from"].is_array();
    objects.child(ChildKind::NetworkPolicy, "mcp-web", "to be ours", ours).await;
    objects.children(ChildKind::NetworkPolicy).delete("mcp-web", &DeleteParams::default()).await.unwrap();
    objects.child(ChildKind::NetworkPolicy, "mcp-web", "to be back", ours).await;
    operator.idle(place.cluster).await;
    restricted(&place, "web", Some("HostPort")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_network_policy_is_told_in_the_status() {
    let place = Place::new("no-policy").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    objects.has_children("web", &children_of("web")).await;
    operator.idle(place.cluster).await;
    // No policy can be made.
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/networkpolicies.networking.k8s.io": "0"}}});
    objects.create(quota).await;
    let quotas = objects.dynamic("v1", "ResourceQuota");
    let counted = |quota: &kube::api::DynamicObject| quota.data["status"]["used"].is_object();
    portcullis_testing::wait_for_object(&quotas, "none", "to count", super::support::DEADLINE, counted).await;
    objects.children(ChildKind::NetworkPolicy).delete("mcp-web", &DeleteParams::default()).await.unwrap();
    restricted(&place, "web", Some("NetworkPolicyMissing")).await;
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    objects.child(ChildKind::NetworkPolicy, "mcp-web", "to be back", |policy| !policy.is_null()).await;
    restricted(&place, "web", None).await;
}
