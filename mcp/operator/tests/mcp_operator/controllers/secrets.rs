//! What the operator does with the values of Secrets: it needs none of them to delete, and tells nobody what they are.

use k8s_openapi::api::{core::v1::Secret, rbac::v1::PolicyRule};
use kube::{Api, api::DeleteParams};
use mcp_plan::{digest::digest, workload::ChildKind};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Operator, Place,
    support::{DEADLINE, children_of, labelled, minimal, oidc_config, ready_pods, user_with_less, webhook_config},
};

const KEY: &str = "mcp-operator-digest";

fn with_token() -> [Value; 2] {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"t": "hunter2"}});
    [secret, labelled("web", json!({"secrets": [{"name": "token", "key": "t", "targetEnvName": "TOKEN"}]}))]
}

fn checksum(stateful_set: &Value) -> &Value {
    &stateful_set["spec"]["template"]["metadata"]["annotations"]["toolhive.stacklok.dev/secrets-checksum"]
}

/// What somebody who reads pods could try a guessed value against.
fn is_told(value: &[u8], text: &str) -> bool {
    let plain = digest(value);
    let line = |digest: &str| format!("token/t={digest}\n");
    let tried = [plain.clone(), digest(line(&plain).as_bytes()), digest(line("hunter2").as_bytes())];
    tried.iter().any(|digest| text.contains(digest)) || text.contains("hunter2")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_digests_is_made_once_and_its_loss_rolls_the_mcp_server_once() {
    let place = Place::new("digest-key").await;
    let operator = place.operator();
    for object in with_token() {
        place.objects.create(object).await;
    }
    let objects = &place.objects;
    objects.has_children("web", &children_of("web")).await;
    objects.phase("web", "Pending").await;
    operator.idle(place.cluster).await;
    let secrets: Api<Secret> = objects.api();
    let made = secrets.get(KEY).await.unwrap();
    assert!(made.data.as_ref().unwrap()["key"].0.len() >= 32);
    let before = objects.get(ChildKind::StatefulSet, "web").await;
    let proxy = objects.get(ChildKind::Deployment, "web").await;
    assert!(checksum(&before).is_string(), "{before}");

    operator.kill().await;
    let since = place.cluster.audit().mark();
    let operator = place.operator();
    operator.reconciles().await;
    operator.wrote_nothing(place.cluster, since, "after a restart").await;
    let after = secrets.get(KEY).await.unwrap();
    assert_eq!((after.metadata.uid, &after.data), (made.metadata.uid.clone(), &made.data), "made once");

    operator.kill().await;
    secrets.delete(KEY, &DeleteParams::default()).await.unwrap();
    let operator = place.operator();
    let rolled = objects
        .child(ChildKind::StatefulSet, "web", "another checksum", |now| checksum(now) != checksum(&before))
        .await;
    operator.idle(place.cluster).await;
    let settled = objects.get(ChildKind::StatefulSet, "web").await;
    assert_eq!(settled["metadata"]["generation"], rolled["metadata"]["generation"], "once");
    let (old, new) = (before["metadata"]["generation"].as_i64(), settled["metadata"]["generation"].as_i64());
    assert_eq!(new, old.map(|old| old + 1), "once");
    let now = objects.get(ChildKind::Deployment, "web").await;
    assert_eq!(now["spec"]["template"], proxy["spec"]["template"], "the proxy takes no such value");
    assert_ne!(secrets.get(KEY).await.unwrap().data, made.data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_annotation_tells_what_a_value_of_a_secret_is() {
    assert!(is_told(b"hunter2", &digest(b"hunter2")));
    let place = Place::new("digest-told").await;
    let operator = place.operator();
    for object in with_token() {
        place.objects.create(object).await;
    }
    place.objects.has_children("web", &children_of("web")).await;
    place.objects.phase("web", "Pending").await;
    operator.idle(place.cluster).await;
    for (kind, name) in children_of("web") {
        let child = place.objects.get(kind, &name).await.to_string();
        assert!(!is_told(b"hunter2", &child), "{kind:?} {name}: {child}");
    }
    let server = serde_json::to_string(&place.objects.servers().get("web").await.unwrap()).unwrap();
    assert!(!is_told(b"hunter2", &server) && !is_told(b"hunter2", &operator.log()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_deleted_though_its_secrets_cannot_be_read() {
    let place = Place::new("unreadable").await;
    let operator = blind_operator(&place, "secrets").await;
    for object in with_token() {
        place.objects.create(object).await;
    }
    operator.logged("cannot read Secret").await;
    assert!(place.objects.get(ChildKind::StatefulSet, "web").await.is_null(), "it cannot be planned");
    place.objects.server("web", "its finalizer", |server| server.metadata.finalizers.is_some()).await;
    place.objects.servers().delete("web", &DeleteParams::default()).await.unwrap();
    wait_until("the server to go", DEADLINE, || async {
        place.objects.servers().get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unguarded_proxy_does_not_go_on_serving_a_gated_server_whose_secrets_cannot_be_read() {
    let place = Place::new("unread-gate").await;
    let objects = &place.objects;
    let operator = place.operator();
    objects.create(webhook_config("gate", json!({}))).await;
    for object in with_token() {
        objects.create(object).await;
    }
    objects.has_children("web", &children_of("web")).await;
    ready_pods(objects, "web").await;
    objects.phase("web", "Ready").await;
    operator.kill().await;
    let operator = blind_operator(&place, "secrets").await;
    operator.logged("cannot read Secret").await;
    assert!(
        objects.get(ChildKind::Deployment, "web").await["metadata"]["deletionTimestamp"].is_null(),
        "it has its guards"
    );
    objects.edit("web", json!({"webhookConfigRef": {"name": "gate"}})).await;
    objects.child(ChildKind::Deployment, "web", "to be gone", Value::is_null).await;
    let status = objects.phase("web", "Failed").await.status.unwrap();
    assert!(status.message.unwrap().contains("cannot read Secret"), "{:?}", status.conditions);
    let enforced = status.conditions.unwrap().into_iter().find(|it| it.type_ == "GuardsEnforced").unwrap();
    // Missing while the old pod ends, then nothing serves.
    assert_eq!(&*enforced.status, "False", "{enforced:?}");

    operator.kill().await;
    let _operator = place.operator();
    objects.has_children("web", &children_of("web")).await;
}

/// What a proxy takes from a ConfigMap is looked at; the documents of the proxies are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_config_map_is_read_but_those_that_something_refers_to() {
    let place = Place::new("unread-bundle").await;
    let _operator = blind_operator(&place, "configmaps").await;
    let objects = &place.objects;
    let bundle = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca"}, "data": {"ca.crt": "x"}});
    objects.create(bundle).await;
    objects.create(oidc_config("plain", json!({}))).await;
    let reference = json!({"configMapRef": {"name": "ca", "key": "ca.crt"}});
    objects.create(oidc_config("with-ca", json!({"caBundleRef": reference}))).await;
    for config in ["plain", "with-ca"] {
        objects.create(labelled(config, json!({"oidcConfigRef": {"name": config, "audience": config}}))).await;
    }
    objects.has_children("plain", &children_of("plain")).await;
    objects.edit("plain", json!({"args": ["--other"]})).await;
    ready_pods(objects, "plain").await;
    objects.phase("plain", "Ready").await;
    let status = objects.phase("with-ca", "Failed").await.status.unwrap();
    assert!(status.message.unwrap().contains("cannot read ConfigMap"), "{:?}", status.conditions);
    assert!(objects.get(ChildKind::Deployment, "with-ca").await.is_null());
}

/// An operator that may watch these objects of the place, Secrets or ConfigMaps, and read none but its own.
async fn blind_operator(place: &Place, objects: &'static str) -> Operator {
    let home = place.cluster.namespace("unreadable-home").await;
    let user = user_with_less(place.cluster, &home, |rule| without_get_of(rule, objects)).await;
    let flags = ["--watch-namespace", place.namespace(), "--bind", "127.0.0.1:0"];
    let operator = Operator::start_with(&user, &home, &flags);
    operator.reconciles().await;
    operator
}

/// The rule without the right to read these objects, but for those that it names: one for those, one for all else.
fn without_get_of(rule: PolicyRule, objects: &str) -> Vec<PolicyRule> {
    if rule.resource_names.is_some() {
        return vec![rule];
    }
    let (those, others): (Vec<String>, Vec<String>) =
        rule.resources.clone().unwrap_or_default().into_iter().partition(|it| it == objects);
    let mut narrowed = PolicyRule { resources: Some(those), ..rule.clone() };
    narrowed.verbs.retain(|verb| verb != "get");
    let rest = PolicyRule { resources: Some(others), ..rule };
    let all = [narrowed, rest].into_iter();
    all.filter(|rule| !rule.verbs.is_empty() && rule.resources.iter().any(|all| !all.is_empty())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_server_that_somebody_holds_says_that_it_is_terminating() {
    let place = Place::new("terminating").await;
    let operator = place.operator();
    let objects = &place.objects;
    let mut server = minimal("web");
    server["metadata"]["finalizers"] = json!(["example.com/hold"]);
    objects.create(server).await;
    objects.has_children("web", &children_of("web")).await;
    objects.phase("web", "Pending").await;
    objects.servers().delete("web", &DeleteParams::default()).await.unwrap();
    let server = objects.phase("web", "Terminating").await;
    let status = server.status.unwrap();
    assert_eq!((status.url, status.message.as_deref()), (None, Some("MCP server is being deleted")));
    for (kind, name) in children_of("web") {
        objects.child(kind, &name, "to be gone", Value::is_null).await;
    }
    objects
        .server("web", "only the foreign finalizer", |server| {
            server.metadata.finalizers.as_deref() == Some(&["example.com/hold".to_owned()][..])
        })
        .await;
    operator.idle(place.cluster).await;
    objects.merge("toolhive.stacklok.dev/v1beta1", "MCPServer", "web", json!({"metadata": {"finalizers": null}})).await;
    wait_until("the server to go", DEADLINE, || async {
        objects.servers().get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
}
