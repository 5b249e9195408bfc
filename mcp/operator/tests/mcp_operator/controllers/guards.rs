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
    policy::{BOTH, named},
    recorder::Guarded,
    support::{
        DEADLINE, Operator, auth_server, children_of, children_of_remote, external_auth_config, oidc_config,
        ready_pods_of, webhook_config,
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

/// An edit from which no proxy is made, and the field that the refusal names.
fn broken(guarded: Guarded) -> (Value, &'static str) {
    match guarded {
        Guarded::Server => (json!({"env": [{"name": "A=B", "value": "1"}]}), "spec.env"),
        Guarded::RemoteProxy => {
            (json!({"headerForward": {"addPlaintextHeaders": {"Host": "a"}}}), "spec.headerForward")
        }
    }
}

/// The edit that takes that back.
fn mended(guarded: Guarded) -> Value {
    match guarded {
        Guarded::Server => json!({"env": null}),
        Guarded::RemoteProxy => json!({"headerForward": null}),
    }
}

fn with_members(mut edit: Value, members: Value) -> Value {
    edit.as_object_mut().unwrap().append(&mut members.as_object().unwrap().clone());
    edit
}

/// A workload of either kind in a namespace.
struct Workload<'a> {
    place: &'a Place,
    guarded: Guarded,
    name: String,
}

impl<'a> Workload<'a> {
    /// One of each kind, whose names begin so.
    fn both(place: &'a Place, name: &str) -> [Self; 2] {
        BOTH.map(|guarded| Self { place, guarded, name: format!("{name}-{}", guarded.app()) })
    }

    async fn create(&self, spec: Value) {
        self.place.objects.create(named(self.guarded, &self.name, spec)).await;
    }

    async fn edit(&self, spec: Value) {
        self.place.objects.merge(BETA, self.guarded.kind(), &self.name, json!({"spec": spec})).await;
    }

    async fn deployment(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        self.place.objects.child(ChildKind::Deployment, &self.name, what, condition).await
    }

    /// The name of the Service in front of its proxy.
    fn service(&self) -> String {
        match self.guarded {
            Guarded::Server => format!("mcp-{}-proxy", self.name),
            Guarded::RemoteProxy => format!("mcp-{}-remote-proxy", self.name),
        }
    }

    async fn has_children(&self) {
        let children = match self.guarded {
            Guarded::Server => children_of(&self.name),
            Guarded::RemoteProxy => children_of_remote(&self.name),
        };
        self.place.objects.has_children(&self.name, &children).await;
    }

    /// Creates it, and waits until it is ready.
    async fn serves(&self, spec: Value) {
        self.create(spec).await;
        self.has_children().await;
        ready_pods_of(&self.place.objects, &self.guarded.app(), &self.name).await;
        self.status("to be ready", |status| status["phase"] == "Ready").await;
    }

    /// Waits until a status of its generation fulfils `condition`.
    async fn status(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let told = |workload: &DynamicObject| {
            let status = &workload.data["status"];
            status["observedGeneration"].as_i64() == workload.metadata.generation && condition(status)
        };
        let api = self.guarded.api(&self.place.objects);
        wait_for_object(&api, &self.name, what, DEADLINE, told).await.data["status"].take()
    }

    /// Waits until it is refused, for a reason that contains `why`: in phase, message and `Ready`.
    async fn is_refused(&self, why: &str) -> Value {
        let says = |message: &Value| message.as_str().is_some_and(|text| text.contains(why));
        let is_unready = |it: &Value| it["type"] == "Ready" && it["status"] == "False" && says(&it["message"]);
        let refused = |status: &Value| {
            let ready = status["conditions"].as_array().is_some_and(|all| all.iter().any(is_unready));
            status["phase"] == "Failed" && says(&status["message"]) && ready
        };
        self.status("to be refused", refused).await
    }

    async fn has_no_proxy(&self) {
        self.deployment("to be gone", Value::is_null).await;
        let pods: Api<Pod> = self.place.objects.api();
        let selector = format!("app={},toolhive-name={}", self.guarded.app(), self.name);
        let selector = ListParams::default().labels(&selector);
        wait_until("the proxy's pods to go", DEADLINE, || async {
            pods.list(&selector).await.unwrap().items.is_empty().then_some(())
        })
        .await;
    }
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
    let each = || guards.iter().flat_map(|row| Workload::both(&place, row.0).map(|workload| (workload, row)));
    place.objects.create(external_auth_config("x", auth_server())).await;
    for (workload, (_, spec, _)) in each() {
        workload.create(spec.clone()).await;
    }
    for (workload, _) in each() {
        workload.is_refused("does not run").await;
    }
    let _operator = webhooks.after_the_edit(&place, operator).await;
    for (workload, (_, _, type_)) in each() {
        let status = workload.is_refused("does not run").await;
        let conditions = status["conditions"].as_array().unwrap();
        let guard = conditions.iter().find(|it| it["type"] == *type_).unwrap();
        let says = guard["message"].as_str().unwrap().contains("does not run");
        assert!(guard["status"] == "False" && says, "{}: {guard}", workload.name);
        assert!(place.objects.get(ChildKind::Deployment, &workload.name).await.is_null(), "{}", workload.name);
        assert!(place.objects.get(ChildKind::StatefulSet, &workload.name).await.is_null(), "{}", workload.name);
    }
    // It comes after the status.
    for (workload, _) in each() {
        let warning = "Warning InvalidConfig".to_owned();
        wait_until("the event", DEADLINE, || async {
            place.objects.events(workload.guarded.kind(), &workload.name).await.contains(&warning).then_some(())
        })
        .await;
    }
}

async fn a_running_server_stops_when_a_guard_that_is_not_built_is_added_and_runs_again_without_it(webhooks: Webhooks) {
    let place = webhooks.place("guard-added").await;
    let operator = webhooks.operator(&place);
    place.objects.create(external_auth_config("x", auth_server())).await;
    let both = Workload::both(&place, "web");
    for workload in &both {
        workload.serves(json!({})).await;
        workload.edit(json!({"externalAuthConfigRef": {"name": "x"}})).await;
    }
    for workload in &both {
        workload.has_no_proxy().await;
        workload.is_refused("does not run").await;
    }
    let _operator = webhooks.after_the_edit(&place, operator).await;
    for workload in &both {
        workload.edit(json!({"externalAuthConfigRef": null})).await;
    }
    for workload in &both {
        workload.has_children().await;
    }
}

async fn an_invalid_edit_that_asks_for_a_guard_ends_the_open_proxy(webhooks: Webhooks) {
    let place = webhooks.place("invalid-edit").await;
    let operator = webhooks.operator(&place);
    // A guard that is not built, one that is not there, and one that is.
    let guards = [
        ("unbuilt", json!({"externalAuthConfigRef": {"name": "x"}}), Some("does not run")),
        ("absent", json!({"webhookConfigRef": {"name": "absent"}}), Some("absent")),
        ("there", json!({"webhookConfigRef": {"name": "gate"}}), None),
    ];
    let each = || guards.iter().flat_map(|row| Workload::both(&place, row.0).map(|workload| (workload, row)));
    place.objects.create(webhook_config("gate", json!({}))).await;
    place.objects.create(external_auth_config("x", auth_server())).await;
    for (workload, _) in each() {
        workload.serves(json!({})).await;
    }
    for (workload, (_, guard, _)) in each() {
        workload.edit(with_members(broken(workload.guarded).0, guard.clone())).await;
    }
    let are_refused = || async {
        for (workload, (_, _, why)) in each() {
            workload.has_no_proxy().await;
            workload.is_refused(why.unwrap_or(broken(workload.guarded).1)).await;
        }
    };
    are_refused().await;
    let _operator = webhooks.after_the_edit(&place, operator).await;
    are_refused().await;
    for workload in Workload::both(&place, "there") {
        workload.edit(mended(workload.guarded)).await;
        workload.has_children().await;
    }
}

async fn an_invalid_edit_leaves_the_guarded_proxy_and_says_so(webhooks: Webhooks) {
    let place = webhooks.place("invalid-guarded").await;
    let operator = webhooks.operator(&place);
    let objects = &place.objects;
    objects.create(webhook_config("gate", json!({}))).await;
    let mut before = Vec::new();
    let (guarded, new) = (Workload::both(&place, "web"), Workload::both(&place, "new"));
    for workload in &guarded {
        workload.serves(json!({"webhookConfigRef": {"name": "gate"}})).await;
        before.push(objects.get(ChildKind::Deployment, &workload.name).await);
        workload.edit(broken(workload.guarded).0).await;
    }
    // One that is made with it says the same.
    for workload in &new {
        workload.create(broken(workload.guarded).0).await;
    }
    let all = || guarded.iter().chain(&new);
    for workload in all() {
        workload.is_refused(broken(workload.guarded).1).await;
    }
    let operator = webhooks.after_the_edit(&place, operator).await;
    for workload in all() {
        workload.is_refused(broken(workload.guarded).1).await;
    }
    operator.idle(place.cluster).await;
    for (workload, before) in guarded.iter().zip(before) {
        let after = objects.get(ChildKind::Deployment, &workload.name).await;
        assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]));
    }
    for workload in &new {
        let events = objects.events(workload.guarded.kind(), &workload.name).await;
        let refusals = events.iter().filter(|event| event.starts_with("Warning")).count();
        let once = if webhooks == Webhooks::OffThenOn { 1..=2 } else { 1..=1 };
        assert!(once.contains(&refusals), "{events:?}");
    }
}

/// A guard that can be built and is not there yet: the proxy waits for it, and one that runs without it goes first.
async fn a_gate_added_to_a_running_server_replaces_the_unguarded_proxy_before_the_guarded_one_starts(
    webhooks: Webhooks,
) {
    let place = webhooks.place("gate").await;
    let operator = webhooks.operator(&place);
    let both = Workload::both(&place, "web");
    let mut before = Vec::new();
    for workload in &both {
        workload.create(json!({})).await;
        let made = workload.deployment("to come", |it| !it.is_null()).await;
        before.push(made["metadata"]["uid"].clone());
    }
    for workload in &both {
        workload.edit(json!({"webhookConfigRef": {"name": "gate"}})).await;
    }
    for workload in &both {
        workload.has_no_proxy().await;
        workload.is_refused("gate").await;
    }
    let _operator = webhooks.after_the_edit(&place, operator).await;

    place.objects.create(webhook_config("gate", json!({}))).await;
    for (workload, before) in both.iter().zip(before) {
        let after = workload.deployment("to come back", |it| !it.is_null()).await;
        assert_ne!(after["metadata"]["uid"], before);
        let config = after["metadata"]["annotations"]["toolhive.stacklok.dev/webhook-config"].as_str().unwrap();
        assert_eq!(config.split('/').next(), Some("gate"));
    }
}

/// A Deployment that was made now would take them on, and keep them until its own pods are ready; a Service would lead calls
/// to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_pods_that_outlived_their_deployment_get_no_service_and_the_status_says_what_to_delete() {
    let place = Place::new("orphans").await;
    let operator = place.operator();
    let objects = &place.objects;
    let both = Workload::both(&place, "web");
    objects.create(oidc_config("idp", json!({}))).await;
    for workload in &both {
        workload.serves(json!({})).await;
    }
    operator.kill().await;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    for workload in &both {
        objects.children(ChildKind::Deployment).delete(&workload.name, &orphan).await.unwrap();
        workload.deployment("to be gone", Value::is_null).await;
        workload.edit(json!({"oidcConfigRef": {"name": "idp", "audience": workload.name}})).await;
    }

    let operator = place.operator();
    let sets: Api<ReplicaSet> = objects.api();
    let left: Vec<String> =
        sets.list(&ListParams::default()).await.unwrap().into_iter().map(|it| it.name_any()).collect();
    assert_eq!(left.len(), both.len());
    for workload in &both {
        let set = left.iter().find(|set| set.starts_with(&workload.name)).unwrap();
        let status =
            workload.is_refused(&format!("kubectl delete -n {} replicaset.apps {set}", place.namespace())).await;
        assert!(status["url"].is_null(), "{status}");
        objects.child(ChildKind::Service, &workload.service(), "to be gone", Value::is_null).await;
    }
    operator.idle(place.cluster).await;
    for workload in &both {
        assert!(objects.get(ChildKind::Deployment, &workload.name).await.is_null(), "{}", workload.name);
        assert!(objects.get(ChildKind::Service, &workload.service()).await.is_null(), "{}", workload.name);
    }
    for set in &left {
        sets.delete(set, &DeleteParams::background()).await.unwrap();
    }
    for workload in &both {
        let made = workload.deployment("to come", |it| !it.is_null()).await;
        let template = &made["spec"]["template"]["metadata"]["annotations"];
        let guards = template["toolhive.stacklok.dev/guards"].as_str().unwrap_or_default();
        assert!(guards.starts_with("MCPOIDCConfig/idp/"), "{made}");
        objects.child(ChildKind::Service, &workload.service(), "to come back", |it| !it.is_null()).await;
    }
}

/// A configuration that goes bad or goes away leaves what runs guarded as it is.
async fn a_config_that_becomes_invalid_keeps_the_guarded_proxy_and_says_so(webhooks: Webhooks) {
    let place = webhooks.place("config-bad").await;
    let operator = webhooks.operator(&place);
    let objects = &place.objects;
    objects.create(webhook_config("gate", json!({}))).await;
    let both = Workload::both(&place, "web");
    let mut before = Vec::new();
    for workload in &both {
        workload.create(json!({"webhookConfigRef": {"name": "gate"}})).await;
        before.push(workload.deployment("to come", |it| !it.is_null()).await);
    }
    let broken = json!({"spec": {"validating": [{"name": "policy", "url": "ftp://nowhere"}]}});
    objects.merge(ALPHA, "MCPWebhookConfig", "gate", broken).await;
    for workload in &both {
        workload.is_refused("left as it is").await;
    }
    let _operator = webhooks.after_the_edit(&place, operator).await;
    for (workload, before) in both.iter().zip(before) {
        workload.is_refused("left as it is").await;
        let after = objects.get(ChildKind::Deployment, &workload.name).await;
        assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]));
    }
    // Gone by force, finalizer and all: the same.
    objects.merge(ALPHA, "MCPWebhookConfig", "gate", json!({"metadata": {"finalizers": null}})).await;
    objects.configs().delete("gate", &DeleteParams::default()).await.unwrap();
}
