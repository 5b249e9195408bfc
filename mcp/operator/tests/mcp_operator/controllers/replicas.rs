//! Replicas of a proxy: an autoscaler's, and the Redis that an operator has for all of them.

use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::{
    Operator, Place,
    support::{children_of, labelled, minimal, reason_of},
};

/// An autoscaler of the proxy of `web` without a metric that it could read: it keeps its bounds alone.
fn autoscaler(least: u32, most: u32) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": least, "maxReplicas": most,
        },
    })
}

async fn scaled(place: &Place, replicas: u32) -> Value {
    let what = format!("{replicas} replicas");
    place.objects.child(ChildKind::Deployment, "web", &what, |it| it["spec"]["replicas"] == replicas).await
}

/// The controller of kube-controller-manager scales; nobody plays it. It looks once a second, and the operator has to come to rest three times: a busy
/// machine takes more than ten seconds for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_autoscaler_alone_decides_how_many_proxies_there_are() {
    let place = Place::new("autoscaler").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(labelled("web", json!({"replicas": 2}))).await;
    objects.has_children("web", &children_of("web")).await;
    scaled(&place, 2).await;

    objects.create(autoscaler(3, 5)).await;
    // While the spec has a number, the two of them want different ones: it goes.
    objects.edit("web", json!({"replicas": null})).await;
    scaled(&place, 3).await;
    let since = operator.idle(place.cluster).await;
    operator.wrote_nothing(place.cluster, since, "after an autoscaler").await;

    objects.edit("web", json!({"args": ["--other"]})).await;
    objects
        .child(ChildKind::ConfigMap, "web-runconfig", "our write", |map| {
            map["data"]["runconfig.json"].as_str().is_some_and(|document| document.contains("--other"))
        })
        .await;
    operator.idle(place.cluster).await;
    scaled(&place, 3).await;

    let bounds = json!({"spec": {"minReplicas": 1, "maxReplicas": 2}});
    objects.merge("autoscaling/v2", "HorizontalPodAutoscaler", "web", bounds).await;
    scaled(&place, 2).await;
    operator.idle(place.cluster).await;
    scaled(&place, 2).await;
}

fn with_default(place: &Place, flags: &[&str]) -> Operator {
    let own = ["--watch-namespace", place.namespace(), "--bind", "127.0.0.1:0"];
    Operator::start_with(&place.user, place.namespace(), &[&own, flags].concat())
}

fn redis_of(map: &Value) -> Value {
    let document: Value = serde_json::from_str(map["data"]["runconfig.json"].as_str().unwrap_or("{}")).unwrap();
    document["scaling_config"]["session_redis"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_of_the_default_redis_wakes_the_workloads_that_wait_for_it() {
    let place = Place::new("default-redis").await;
    let flags = ["--default-redis-address=redis.example.svc:6379", "--default-redis-secret=redis"];
    let operator = with_default(&place, &flags);
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    objects.create(labelled("memory", json!({"sessionStorage": {"provider": "memory"}}))).await;

    let server = objects.phase("web", "Failed").await;
    assert_eq!(reason_of(&server, "SessionStorageReady", "False"), Some("SessionStorageSecretNotFound"));
    assert!(objects.get(ChildKind::Deployment, "web").await.is_null());
    objects.has_children("memory", &children_of("memory")).await;
    assert_eq!(redis_of(&objects.get(ChildKind::ConfigMap, "memory-runconfig").await), Value::Null);

    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "redis"}, "stringData": {"redis-password": "hunter2"},
    });
    objects.create(secret).await;
    objects.has_children("web", &children_of("web")).await;
    let redis = redis_of(&objects.get(ChildKind::ConfigMap, "web-runconfig").await);
    assert_eq!(redis, json!({"address": "redis.example.svc:6379"}));
    let before = objects.get(ChildKind::Deployment, "web").await;
    objects.merge("v1", "Secret", "redis", json!({"stringData": {"redis-password": "other"}})).await;
    let template = |object: &Value| object["spec"]["template"]["metadata"]["annotations"].clone();
    objects.child(ChildKind::Deployment, "web", "another template", |now| template(now) != template(&before)).await;
    operator.idle(place.cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_redis_without_a_port_is_said_by_each_workload_and_stops_no_operator() {
    let place = Place::new("bad-default").await;
    let operator = with_default(&place, &["--default-redis-address=redis"]);
    operator.reconciles().await;
    let objects = &place.objects;
    for name in ["one", "two"] {
        objects.create(minimal(name)).await;
    }
    for name in ["one", "two"] {
        let server = objects.phase(name, "Failed").await;
        let message = server.status.as_ref().and_then(|status| status.message.clone()).unwrap();
        assert!(message.contains("--default-redis-address: \"redis\" is no host and port"), "{message}");
    }
    // A workload that keeps its own sessions, or has none to share them with, is made all the same.
    objects.create(labelled("stdio", json!({"transport": "stdio"}))).await;
    objects.create(labelled("memory", json!({"transport": "sse", "sessionStorage": {"provider": "memory"}}))).await;
    for name in ["stdio", "memory"] {
        objects.child(ChildKind::Deployment, name, "to be made", |made| !made.is_null()).await;
    }
}
