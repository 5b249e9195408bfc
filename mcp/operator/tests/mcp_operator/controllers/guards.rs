//! A server never runs without the guard that its author asks for.

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PropagationPolicy},
};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};

use super::{
    Place,
    policy::{BOTH, edit, workload},
    recorder::Guarded,
    support::{
        DEADLINE, Operator, auth_server, children_of, external_auth_config, labelled, minimal, oidc_config, ready_pods,
        ready_pods_of, remote_proxy, webhook_config,
    },
};

const BETA: &str = "toolhive.stacklok.dev/v1beta1";
const ALPHA: &str = "toolhive.stacklok.dev/v1alpha1";

/// Whether the operator serves webhooks. Here the API server calls none, so that every edit is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Webhooks {
    On,
    Off,
    /// Off when the edit is made, and on after that.
    OffThenOn,
}

impl Webhooks {
    async fn place(self, name: &str) -> Place {
        Place::new(&format!("{name}-{self:?}").to_lowercase()).await
    }

    /// Starts the operator that sees the edit.
    fn operator(self, place: &Place) -> Operator {
        if self == Self::On {
            return place.operator();
        }
        let flags = ["--watch-namespace", place.namespace(), "--webhooks", "off"];
        Operator::start_with(&place.user, place.namespace(), &flags)
    }

    /// Turns webhooks on, where they are off to be turned on again.
    async fn after_the_edit(self, place: &Place, operator: Operator) -> Operator {
        if self != Self::OffThenOn {
            return operator;
        }
        operator.terminate().await;
        let operator = place.operator();
        operator.reconciles().await;
        operator.idle(place.cluster).await;
        operator
    }
}

/// Runs a test with webhooks on, off, and off when the edit is made and on after that.
macro_rules! with_each_webhooks {
    ($($test:ident)*) => {
        mod webhooks_on {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test(super::Webhooks::On).await; })*
        }
        mod webhooks_off {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test(super::Webhooks::Off).await; })*
        }
        mod webhooks_off_then_on {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test(super::Webhooks::OffThenOn).await; })*
        }
    };
}

with_each_webhooks! {
    a_server_whose_guard_is_not_built_never_gets_a_proxy_and_says_why
    a_running_server_stops_when_a_guard_that_is_not_built_is_added_and_runs_again_without_it
    an_invalid_edit_that_asks_for_a_guard_ends_the_open_proxy
    an_invalid_edit_leaves_the_guarded_proxy_and_says_so
    a_gate_added_to_a_running_server_replaces_the_unguarded_proxy_before_the_guarded_one_starts
    a_config_that_becomes_invalid_keeps_the_guarded_proxy_and_says_so
}

/// Waits until the status says that the server is refused, for a reason that contains `why`: in phase, message and `Ready`.
async fn refused(place: &Place, server: &str, why: &str) {
    let told = place.objects.server(server, "to be refused", |it| {
        let Some(status) = &it.status else { return false };
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let failed = status.phase.is_some_and(|phase| phase.as_str() == "Failed");
        let says = |message: &str| message.contains(why);
        failed
            && status.observed_generation == it.metadata.generation
            && status.message.as_deref().is_some_and(says)
            && ready.is_some_and(|ready| ready.status == "False" && says(&ready.message))
    });
    told.await;
}

/// Waits until the workload `web` of a kind is refused, for a reason that contains `why`.
async fn failed(place: &Place, guarded: Guarded, why: &str) {
    let told = |workload: &DynamicObject| {
        let status = &workload.data["status"];
        let is_of_now = status["observedGeneration"].as_i64() == workload.metadata.generation;
        let says = |message: &Value| message.as_str().is_some_and(|text| text.contains(why));
        let is_unready = |it: &Value| it["type"] == "Ready" && it["status"] == "False" && says(&it["message"]);
        let ready = status["conditions"].as_array().is_some_and(|all| all.iter().any(is_unready));
        is_of_now && status["phase"] == "Failed" && says(&status["message"]) && ready
    };
    wait_for_object(&guarded.api(&place.objects), "web", "to be refused", DEADLINE, told).await;
}

async fn no_proxy_of(place: &Place, guarded: Guarded) {
    place.objects.child(ChildKind::Deployment, "web", "to be gone", Value::is_null).await;
    let pods: Api<Pod> = place.objects.api();
    wait_until("the proxy's pods to go", DEADLINE, || async {
        pods.list(&guarded.pods()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}

async fn no_proxy(place: &Place, server: &str) {
    place.objects.child(ChildKind::Deployment, server, "to be gone", Value::is_null).await;
    let pods: Api<Pod> = place.objects.api();
    let selector = ListParams::default().labels(&format!("app=mcpserver,toolhive-name={server}"));
    wait_until("the proxy's pods to go", DEADLINE, || async {
        pods.list(&selector).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}

async fn a_server_whose_guard_is_not_built_never_gets_a_proxy_and_says_why(webhooks: Webhooks) {
    let place = webhooks.place("unbuilt").await;
    let operator = webhooks.operator(&place);
    let guards = [
        ("external", json!({"externalAuthConfigRef": {"name": "x"}}), "ExternalAuthConfigValidated"),
        (
            "authserver",
            json!({"authServerRef": {"kind": "MCPExternalAuthConfig", "name": "x"}}),
            "AuthServerRefValidated",
        ),
    ];
    place.objects.create(external_auth_config("x", auth_server())).await;
    for (name, spec, _) in &guards {
        place.objects.create(labelled(name, spec.clone())).await;
    }
    for (name, ..) in &guards {
        place.objects.phase(name, "Failed").await;
    }
    let _operator = webhooks.after_the_edit(&place, operator).await;
    for (name, _, type_) in &guards {
        let server = place.objects.phase(name, "Failed").await;
        let status = server.status.unwrap();
        let conditions = status.conditions.unwrap();
        let guard = conditions.iter().find(|it| it.type_ == *type_).unwrap();
        assert!(guard.status == "False" && guard.message.contains("does not run"), "{name}: {guard:?}");
        assert!(place.objects.get(ChildKind::Deployment, name).await.is_null(), "{name}");
        assert!(place.objects.get(ChildKind::StatefulSet, name).await.is_null(), "{name}");
    }
    // It comes after the status.
    wait_until("the event", DEADLINE, || async {
        place.objects.events("MCPServer", "external").await.contains(&"Warning InvalidConfig".to_owned()).then_some(())
    })
    .await;
}

async fn a_running_server_stops_when_a_guard_that_is_not_built_is_added_and_runs_again_without_it(webhooks: Webhooks) {
    let place = webhooks.place("guard-added").await;
    let operator = webhooks.operator(&place);
    place.objects.create(external_auth_config("x", auth_server())).await;
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    ready_pods(&place.objects, "web").await;
    place.objects.phase("web", "Ready").await;
    place.objects.edit("web", json!({"externalAuthConfigRef": {"name": "x"}})).await;
    no_proxy(&place, "web").await;
    place.objects.phase("web", "Failed").await;
    let _operator = webhooks.after_the_edit(&place, operator).await;
    place.objects.edit("web", json!({"externalAuthConfigRef": null})).await;
    place.objects.has_children("web", &children_of("web")).await;
}

async fn an_invalid_edit_that_asks_for_a_guard_ends_the_open_proxy(webhooks: Webhooks) {
    let place = webhooks.place("invalid-edit").await;
    let operator = webhooks.operator(&place);
    let objects = &place.objects;
    // A guard that is not built, one that is not there, and one that is.
    let guards = [
        ("unbuilt", json!({"externalAuthConfigRef": {"name": "x"}}), "does not run"),
        ("absent", json!({"webhookConfigRef": {"name": "absent"}}), "absent"),
        ("there", json!({"webhookConfigRef": {"name": "gate"}}), "spec.env"),
    ];
    objects.create(webhook_config("gate", json!({}))).await;
    objects.create(external_auth_config("x", auth_server())).await;
    for (name, ..) in &guards {
        objects.create(minimal(name)).await;
        objects.has_children(name, &children_of(name)).await;
        ready_pods(objects, name).await;
        objects.phase(name, "Ready").await;
    }
    for (name, guard, _) in &guards {
        let mut edit = guard.clone();
        edit["env"] = json!([{"name": "A=B", "value": "1"}]);
        objects.edit(name, edit).await;
    }
    for (name, _, why) in &guards {
        no_proxy(&place, name).await;
        refused(&place, name, why).await;
    }
    let _operator = webhooks.after_the_edit(&place, operator).await;
    for (name, _, why) in &guards {
        no_proxy(&place, name).await;
        refused(&place, name, why).await;
    }
    objects.edit("there", json!({"env": null})).await;
    objects.has_children("there", &children_of("there")).await;
}

async fn an_invalid_edit_leaves_the_guarded_proxy_and_says_so(webhooks: Webhooks) {
    let place = webhooks.place("invalid-guarded").await;
    let operator = webhooks.operator(&place);
    let objects = &place.objects;
    objects.create(webhook_config("gate", json!({}))).await;
    objects.create(labelled("web", json!({"webhookConfigRef": {"name": "gate"}}))).await;
    objects.has_children("web", &children_of("web")).await;
    ready_pods(objects, "web").await;
    objects.phase("web", "Ready").await;
    let before = objects.get(ChildKind::Deployment, "web").await;
    objects.edit("web", json!({"env": [{"name": "A=B", "value": "1"}]})).await;
    refused(&place, "web", "spec.env").await;
    // A server that is made with it says the same.
    objects.create(labelled("new", json!({"env": [{"name": "A=B", "value": "1"}]}))).await;
    refused(&place, "new", "spec.env").await;
    let operator = webhooks.after_the_edit(&place, operator).await;
    refused(&place, "web", "spec.env").await;
    refused(&place, "new", "spec.env").await;
    operator.idle(place.cluster).await;
    let after = objects.get(ChildKind::Deployment, "web").await;
    assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]));
    let events = objects.events("MCPServer", "new").await;
    let refusals = events.iter().filter(|event| event.starts_with("Warning")).count();
    let once = if webhooks == Webhooks::OffThenOn { 1..=2 } else { 1..=1 };
    assert!(once.contains(&refusals), "{events:?}");
}

/// A guard that can be built and is not there yet: the proxy waits for it, and one that runs without it goes first.
async fn a_gate_added_to_a_running_server_replaces_the_unguarded_proxy_before_the_guarded_one_starts(
    webhooks: Webhooks,
) {
    for guarded in BOTH {
        let place = webhooks.place(&format!("gate-{}", guarded.kind())).await;
        let operator = webhooks.operator(&place);
        let objects = &place.objects;
        objects.create(workload(guarded, json!({}))).await;
        let before = objects.child(ChildKind::Deployment, "web", "to come", |it| !it.is_null()).await;
        let before = before["metadata"]["uid"].clone();
        edit(&place, guarded, json!({"webhookConfigRef": {"name": "gate"}})).await;
        no_proxy_of(&place, guarded).await;
        failed(&place, guarded, "gate").await;
        let _operator = webhooks.after_the_edit(&place, operator).await;

        objects.create(webhook_config("gate", json!({}))).await;
        let after = objects.child(ChildKind::Deployment, "web", "to come back", |it| !it.is_null()).await;
        assert_ne!(after["metadata"]["uid"], before);
        assert_eq!(
            after["metadata"]["annotations"]["toolhive.stacklok.dev/webhook-config"]
                .as_str()
                .unwrap()
                .split('/')
                .next(),
            Some("gate")
        );
    }
}

/// A Deployment that was made now would take them on, and keep them until its own pods are ready; a Service would lead calls
/// to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_pods_that_outlived_their_deployment_get_no_service_and_the_status_says_what_to_delete() {
    let place = Place::new("orphans").await;
    let operator = place.operator();
    let objects = &place.objects;
    let workloads = [
        ("MCPServer", "mcpserver", minimal("web"), "web", "mcp-web-proxy"),
        ("MCPRemoteProxy", "mcpremoteproxy", remote_proxy("far", json!({})), "far", "mcp-far-remote-proxy"),
    ];
    objects.create(oidc_config("idp", json!({}))).await;
    let phase = |workload: &DynamicObject| workload.data["status"]["phase"].as_str().map(str::to_owned);
    for (kind, app, open, name, _) in &workloads {
        objects.create(open.clone()).await;
        ready_pods_of(objects, app, name).await;
        let is_ready = |workload: &DynamicObject| phase(workload).as_deref() == Some("Ready");
        wait_for_object(&objects.dynamic(BETA, kind), name, "to be ready", DEADLINE, is_ready).await;
    }
    operator.kill().await;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    for (kind, _, _, name, _) in &workloads {
        objects.children(ChildKind::Deployment).delete(name, &orphan).await.unwrap();
        objects.child(ChildKind::Deployment, name, "to be gone", Value::is_null).await;
        let login = json!({"spec": {"oidcConfigRef": {"name": "idp", "audience": name}}});
        objects.merge(BETA, kind, name, login).await;
    }

    let operator = place.operator();
    let sets: Api<ReplicaSet> = objects.api();
    let left: Vec<String> =
        sets.list(&ListParams::default()).await.unwrap().into_iter().map(|it| it.name_any()).collect();
    assert_eq!(left.len(), workloads.len());
    for (kind, _, _, name, service) in &workloads {
        let set = left.iter().find(|set| set.starts_with(name)).unwrap();
        let says = format!("kubectl delete -n {} replicaset.apps {set}", place.namespace());
        let told = |workload: &DynamicObject| {
            let message = workload.data["status"]["message"].as_str();
            message.is_some_and(|message| message.ends_with(&says)) && phase(workload).as_deref() == Some("Failed")
        };
        let api = objects.dynamic(BETA, kind);
        let told = wait_for_object(&api, name, "what to delete", DEADLINE, told).await;
        assert!(told.data["status"]["url"].is_null(), "{kind}");
        objects.child(ChildKind::Service, service, "to be gone", Value::is_null).await;
    }
    operator.idle(place.cluster).await;
    for (kind, _, _, name, service) in &workloads {
        assert!(objects.get(ChildKind::Deployment, name).await.is_null(), "{kind}");
        assert!(objects.get(ChildKind::Service, service).await.is_null(), "{kind}");
    }
    for set in &left {
        sets.delete(set, &DeleteParams::background()).await.unwrap();
    }
    for (kind, _, _, name, service) in &workloads {
        let made = objects.child(ChildKind::Deployment, name, "to come", |it| !it.is_null()).await;
        let template = &made["spec"]["template"]["metadata"]["annotations"];
        let guards = template["toolhive.stacklok.dev/guards"].as_str().unwrap_or_default();
        assert!(guards.starts_with("MCPOIDCConfig/idp/"), "{kind}: {made}");
        objects.child(ChildKind::Service, service, "to come back", |it| !it.is_null()).await;
    }
}

/// A configuration that goes bad or goes away leaves what runs guarded as it is.
async fn a_config_that_becomes_invalid_keeps_the_guarded_proxy_and_says_so(webhooks: Webhooks) {
    for guarded in BOTH {
        let place = webhooks.place(&format!("config-bad-{}", guarded.kind())).await;
        let operator = webhooks.operator(&place);
        let objects = &place.objects;
        objects.create(webhook_config("gate", json!({}))).await;
        objects.create(workload(guarded, json!({"webhookConfigRef": {"name": "gate"}}))).await;
        let before = objects.child(ChildKind::Deployment, "web", "to come", |it| !it.is_null()).await;
        let broken = json!({"spec": {"validating": [{"name": "policy", "url": "ftp://nowhere"}]}});
        objects.merge(ALPHA, "MCPWebhookConfig", "gate", broken).await;
        failed(&place, guarded, "left as it is").await;
        let _operator = webhooks.after_the_edit(&place, operator).await;
        failed(&place, guarded, "left as it is").await;
        let after = objects.get(ChildKind::Deployment, "web").await;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(after["spec"], before["spec"]);
        // Gone by force, finalizer and all: the same.
        objects.merge(ALPHA, "MCPWebhookConfig", "gate", json!({"metadata": {"finalizers": null}})).await;
        objects.configs().delete("gate", &DeleteParams::default()).await.unwrap();
    }
}
