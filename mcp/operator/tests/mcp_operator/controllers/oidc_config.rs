//! O1, O4 and R1 for MCPOIDCConfig: who refers to it, when it goes, and whose pods an edit rolls.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
};
use mcp_api::v1beta1::{MCPOIDCConfig, MCPServer};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};

use super::{
    Operator, Place,
    support::{
        DEADLINE, children_of, children_of_remote, labelled, minimal, oidc_config, pem, ready_pods, ready_pods_of,
        remote_proxy, tool_config, virtual_server,
    },
};

const API_VERSION: &str = "toolhive.stacklok.dev/v1beta1";
/// Until what many workloads cause has settled, on a busy machine.
const MANY_DEADLINE: Duration = Duration::from_mins(2);

fn guarded(name: &str, config: &str) -> Value {
    labelled(name, json!({"oidcConfigRef": {"name": config, "audience": name}}))
}

fn configs(place: &Place) -> Api<MCPOIDCConfig> {
    place.objects.api()
}

fn referrers(config: &MCPOIDCConfig) -> Vec<(&str, &str)> {
    let status = config.status.iter().flat_map(|status| status.referencing_workloads.iter().flatten());
    status.map(|workload| (&*workload.kind, &*workload.name)).collect()
}

/// The kind of the workload of this name: remote proxies begin with `far-`, virtual servers with `all-`.
fn kind_of(name: &str) -> &'static str {
    match name.split_once('-') {
        Some(("far", _)) => "MCPRemoteProxy",
        Some(("all", _)) => "VirtualMCPServer",
        _ => "MCPServer",
    }
}

/// Waits until these are its referrers.
async fn referenced(place: &Place, config: &str, workloads: &[String], deadline: Duration) -> MCPOIDCConfig {
    let wanted: Vec<_> = workloads.iter().map(|name| (kind_of(name), &**name)).collect();
    wait_for_object(&configs(place), config, &format!("{} referrers", workloads.len()), deadline, |config| {
        config.status.is_some() && referrers(config) == wanted
    })
    .await
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|&name| name.to_owned()).collect()
}

pub(super) fn condition<'a>(server: &'a MCPServer, type_: &str) -> Option<(&'a str, &'a str)> {
    let mut conditions = server.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|it| it.type_ == type_).map(|it| (&*it.status, &*it.reason))
}

async fn create_client_secret(place: &Place) {
    let metadata = json!({"name": "client"});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"secret": "hunter2"}});
    place.objects.create(secret).await;
}

async fn create_bundle(place: &Place) {
    let metadata = json!({"name": "idp-ca"});
    let bundle =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": pem::authority()}});
    place.objects.create(bundle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_come_and_go_as_workloads_are_created_re_pointed_and_deleted() {
    let place = Place::new("oidc-referenced").await;
    let _operator = place.operator();
    let objects = &place.objects;
    for name in ["idp", "other"] {
        objects.create(oidc_config(name, json!({}))).await;
        let config = referenced(&place, name, &[], DEADLINE).await;
        let finalizer = "mcpoidcconfig.toolhive.stacklok.dev/finalizer".to_owned();
        assert_eq!(config.metadata.finalizers, Some(vec![finalizer]));
    }
    for name in ["c", "a", "b"] {
        objects.create(guarded(name, "idp")).await;
    }
    objects.create(remote_proxy("far-a", json!({"oidcConfigRef": {"name": "idp", "audience": "a"}}))).await;
    referenced(&place, "idp", &names(&["far-a", "a", "b", "c"]), DEADLINE).await;
    let other = json!({"oidcConfigRef": {"name": "other"}});
    objects.edit("b", other.clone()).await;
    objects.merge(API_VERSION, "MCPRemoteProxy", "far-a", json!({"spec": other})).await;
    referenced(&place, "other", &names(&["far-a", "b"]), DEADLINE).await;
    referenced(&place, "idp", &names(&["a", "c"]), DEADLINE).await;

    configs(&place).delete("idp", &DeleteParams::default()).await.unwrap();
    let blocked = |config: &MCPOIDCConfig| {
        let mut conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|it| it.message == "Cannot delete: referenced by MCPServers: a, c")
    };
    wait_for_object(&configs(&place), "idp", "DeletionBlocked", DEADLINE, blocked).await;
    objects.edit("a", json!({"oidcConfigRef": null})).await;
    referenced(&place, "idp", &names(&["c"]), DEADLINE).await;
    objects.servers().delete("c", &DeleteParams::default()).await.unwrap();
    wait_until("the configuration to go", DEADLINE, || async {
        configs(&place).get_opt("idp").await.unwrap().is_none().then_some(())
    })
    .await;
    let remote = objects.dynamic(API_VERSION, "MCPRemoteProxy");
    remote.delete("far-a", &DeleteParams::default()).await.unwrap();
    referenced(&place, "other", &names(&["b"]), DEADLINE).await;
    let told = objects.events("MCPOIDCConfig", "idp").await;
    for event in ["Normal ConfigValid", "Warning DeletionBlocked"] {
        assert!(told.contains(&event.to_owned()), "{event} not in {told:?}");
    }
}

/// The template of a workload's proxy, and how often it was written.
async fn proxy(place: &Place, workload: &str) -> (Value, i64) {
    let live = place.objects.get(ChildKind::Deployment, workload).await;
    (live["spec"]["template"].clone(), live["metadata"]["generation"].as_i64().unwrap())
}

/// Waits until the proxies of `workloads` are written anew, and the operator is idle; then each was written once, and the
/// others' were not.
async fn rolled_alone(
    (place, operator): (&Place, &Operator),
    workloads: &[&str],
    before: &[(&str, (Value, i64))],
    what: &str,
) {
    for (name, (old, _)) in before.iter().filter(|(name, _)| workloads.contains(name)) {
        let rolled = |live: &Value| !live.is_null() && live["spec"]["template"] != *old;
        place.objects.child(ChildKind::Deployment, name, what, rolled).await;
    }
    operator.idle(place.cluster).await;
    for (name, (template, generation)) in before {
        let now = proxy(place, name).await;
        if workloads.contains(name) {
            assert_eq!(now.1, generation + 1, "{what}: {name} rolls once");
        } else {
            assert_eq!((&now.0, now.1), (template, *generation), "{what}: {name} stays");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_rolls_the_proxies_that_it_concerns_once_and_a_new_ca_none() {
    const WORKLOADS: [&str; 4] = ["web", "far-web", "other", "open"];
    let place = Place::new("oidc-rolls").await;
    let operator = place.operator();
    let objects = &place.objects;
    create_client_secret(&place).await;
    create_bundle(&place).await;
    let provider = json!({
        "clientId": "mcp", "clientSecretRef": {"name": "client", "key": "secret"},
        "caBundleRef": {"configMapRef": {"name": "idp-ca", "key": "ca.crt"}},
    });
    objects.create(oidc_config("idp", provider)).await;
    objects.create(oidc_config("plain", json!({}))).await;
    objects.create(guarded("web", "idp")).await;
    objects.create(guarded("other", "plain")).await;
    objects.create(minimal("open")).await;
    objects.create(remote_proxy("far-web", json!({"oidcConfigRef": {"name": "idp", "audience": "far"}}))).await;
    for name in ["web", "other", "open"] {
        objects.has_children(name, &children_of(name)).await;
        ready_pods(objects, name).await;
        objects.phase(name, "Ready").await;
    }
    objects.has_children("far-web", &children_of_remote("far-web")).await;
    ready_pods_of(objects, "mcpremoteproxy", "far-web").await;
    let web = objects.server("web", "its guard in force", |it| condition(it, "GuardsEnforced").is_some()).await;
    assert_eq!(condition(&web, "OIDCConfigRefValidated"), Some(("True", "OIDCConfigRefValid")));
    assert_eq!(condition(&web, "CABundleRefValidated"), Some(("True", "CABundleRefValid")));
    let config_hash = configs(&place).get("idp").await.unwrap().status.unwrap().config_hash;
    assert_eq!(web.status.unwrap().oidc_config_hash, config_hash);

    let now = async || {
        let mut all = Vec::new();
        for name in WORKLOADS {
            all.push((name, proxy(&place, name).await));
        }
        all
    };
    let since = operator.idle(place.cluster).await;
    let far = objects.dynamic(API_VERSION, "MCPRemoteProxy").get("far-web").await.unwrap();
    let status = &far.data["status"];
    assert_eq!((&status["phase"], status["oidcConfigHash"].as_str()), (&json!("Ready"), config_hash.as_deref()));
    let before = now().await;
    let bundle = json!({"data": {"ca.crt": format!("{}{}", pem::authority(), pem::authority())}});
    objects.merge("v1", "ConfigMap", "idp-ca", bundle).await;
    operator.wrote_nothing(place.cluster, since, "a new CA reaches what runs").await;
    assert_eq!(now().await, before, "a new CA rolls none");

    objects.merge("v1", "Secret", "client", json!({"stringData": {"secret": "hunter3"}})).await;
    rolled_alone((&place, &operator), &["web", "far-web"], &before, "another client secret").await;

    let before = now().await;
    let edit = json!({"spec": {"inline": {"jwksUrl": "https://idp.example.com/keys"}}});
    objects.merge(API_VERSION, "MCPOIDCConfig", "idp", edit).await;
    rolled_alone((&place, &operator), &["web", "far-web"], &before, "another configuration").await;

    let before = now().await;
    objects.edit("other", json!({"oidcConfigRef": {"audience": "another"}})).await;
    rolled_alone((&place, &operator), &["other"], &before, "another audience").await;

    // What becomes unusable stops no proxy that has it.
    let before = now().await;
    objects.merge("v1", "ConfigMap", "idp-ca", json!({"data": {"ca.crt": "no PEM"}})).await;
    let web = objects.phase("web", "Failed").await;
    assert_eq!(condition(&web, "CABundleRefValidated"), Some(("False", "CABundleRefInvalid")));
    assert_eq!(now().await, before);
    assert!(!operator.log().contains("hunter"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_login_takes_an_open_server_down_and_gives_it_back_once_it_is_mended() {
    let place = Place::new("oidc-broken").await;
    goes_and_comes_back(&place, minimal("web"), "mcpserver", &children_of("web")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_login_takes_an_open_remote_proxy_down_and_gives_it_back_once_it_is_mended() {
    let place = Place::new("oidc-broken-remote").await;
    let open = remote_proxy("far-web", json!({}));
    goes_and_comes_back(&place, open, "mcpremoteproxy", &children_of_remote("far-web")).await;
}

/// What `open` runs goes when it names a login that cannot be used, and comes back with the login.
async fn goes_and_comes_back(place: &Place, open: Value, app: &str, children: &[(ChildKind, String)]) {
    let _operator = place.operator();
    let objects = &place.objects;
    let (kind, name) =
        (open["kind"].as_str().unwrap().to_owned(), open["metadata"]["name"].as_str().unwrap().to_owned());
    let workloads = objects.dynamic(API_VERSION, &kind);
    let status = async |what: &str, condition: &dyn Fn(&Value) -> bool| {
        wait_for_object(&workloads, &name, what, DEADLINE, |workload| {
            let status = &workload.data["status"];
            status["observedGeneration"].as_i64() == workload.metadata.generation && condition(status)
        })
        .await;
    };
    let login_is = |status: &Value, reason: &str| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "OIDCConfigRefValidated" && it["status"] == "False" && it["reason"] == reason)
    };
    objects.create(open).await;
    objects.has_children(&name, children).await;
    ready_pods_of(objects, app, &name).await;
    status("to be ready", &|status| status["phase"] == "Ready").await;

    let login = json!({"spec": {"oidcConfigRef": {"name": "idp", "audience": "web"}}});
    objects.merge(API_VERSION, &kind, &name, login).await;
    objects.child(ChildKind::Deployment, &name, "to be gone", Value::is_null).await;
    let pods: Api<Pod> = objects.api();
    let selector = ListParams::default().labels(&format!("app={app},toolhive-name={name}"));
    wait_until("the open pods to go", DEADLINE, || async {
        pods.list(&selector).await.unwrap().items.is_empty().then_some(())
    })
    .await;
    status("no such configuration", &|status| login_is(status, "OIDCConfigRefNotFound")).await;
    let secret = json!({"clientId": "mcp", "clientSecretRef": {"name": "client", "key": "secret"}});
    objects.create(oidc_config("idp", secret)).await;
    status("no such Secret", &|status| login_is(status, "OIDCConfigRefError") && status["phase"] == "Failed").await;
    assert!(objects.get(ChildKind::Deployment, &name).await.is_null());
    create_client_secret(place).await;
    objects.has_children(&name, children).await;
    let (template, _) = proxy(place, &name).await;
    let guards = &template["metadata"]["annotations"]["toolhive.stacklok.dev/guards"];
    assert!(guards.as_str().is_some_and(|guards| guards.starts_with("MCPOIDCConfig/idp/")), "{guards}");
}

/// A workload without pods, whose controllers would take most of the time, of the kind that its name says.
fn stopped(name: &str, config: &str) -> Value {
    let login = json!({"name": config, "audience": name});
    match kind_of(name) {
        "MCPRemoteProxy" => remote_proxy(name, json!({"replicas": 0, "oidcConfigRef": login})),
        "VirtualMCPServer" => virtual_server(name, config, "tools"),
        _ => labelled(name, json!({"replicas": 0, "backendReplicas": 0, "oidcConfigRef": login})),
    }
}

async fn re_point(place: &Place, name: &str, config: &str) {
    let login = json!({"oidcConfigRef": {"name": config}});
    let spec = if kind_of(name) == "VirtualMCPServer" { json!({"incomingAuth": login}) } else { login };
    place.objects.merge(API_VERSION, kind_of(name), name, json!({"spec": spec})).await;
}

async fn delete(place: &Place, name: &str) {
    place.objects.dynamic(API_VERSION, kind_of(name)).delete(name, &DeleteParams::default()).await.unwrap();
}

/// The workloads of every kind that has logins.
async fn workloads(place: &Place) -> Vec<DynamicObject> {
    let mut all = Vec::new();
    for kind in ["MCPServer", "MCPRemoteProxy", "VirtualMCPServer"] {
        all.extend(place.objects.dynamic(API_VERSION, kind).list(&ListParams::default()).await.unwrap());
    }
    all
}

/// The statuses of all workloads, by their names.
async fn statuses(place: &Place) -> BTreeMap<String, Value> {
    workloads(place).await.into_iter().map(|it| (it.name_any(), it.data["status"].clone())).collect()
}

/// Waits until every workload has said of its last spec that its login can be used.
async fn settled(place: &Place, many: usize) {
    wait_until("every workload to be reconciled", MANY_DEADLINE, || async {
        let all = workloads(place).await;
        let current = all.iter().filter(|workload| {
            let status = &workload.data["status"];
            status["observedGeneration"].as_i64() == workload.metadata.generation
                && status["oidcConfigHash"].is_string()
        });
        (current.count() == many).then_some(())
    })
    .await;
}

/// O1, R3: they refer to it at once, and all of them together; they leave it by an edit and by their end. Between that the
/// operator comes to rest, and after a restart it writes nothing.
///
/// Sixty show what two hundred do: they are more than all workers of the controllers take at once, so that the status of the
/// configuration is written while more referrers come; and neither number fills a page of a list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_of_sixty_workloads_of_three_kinds_come_and_go() {
    let place = Place::new("oidc-many").await;
    let operator = place.operator();
    operator.reconciles().await;
    for config in ["idp", "other"] {
        place.objects.create(oidc_config(config, json!({}))).await;
    }
    place.objects.create(tool_config("tools", json!({"toolsFilter": ["fetch"]}))).await;
    // As the status lists them: by kind, and by name.
    let named = |prefix: &'static str, many: usize| (0..many).map(move |at| format!("{prefix}{at:03}"));
    let all: Vec<String> = named("far-", 20).chain(named("s", 20)).chain(named("all-", 20)).collect();
    join_all(all.iter().map(|name| place.objects.create(stopped(name, "idp")))).await;
    referenced(&place, "idp", &all, MANY_DEADLINE).await;
    settled(&place, all.len()).await;
    operator.idle(place.cluster).await;
    let before = statuses(&place).await;
    operator.terminate().await;
    let since = place.cluster.audit().mark();
    let operator = place.operator();
    operator.reconciles().await;
    operator.idle(place.cluster).await;
    for (name, now) in statuses(&place).await {
        assert_eq!(Some(&now), before.get(&name), "the status of {name} after a restart");
    }
    operator.wrote_nothing(place.cluster, since, "after a restart").await;

    let (moved, kept): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    let [moved, kept] = [moved, kept].map(|part| part.into_iter().map(|(_, name)| name.clone()).collect::<Vec<_>>());
    join_all(moved.iter().map(|name| re_point(&place, name, "other"))).await;
    referenced(&place, "idp", &kept, MANY_DEADLINE).await;
    referenced(&place, "other", &moved, MANY_DEADLINE).await;
    settled(&place, all.len()).await;
    operator.idle(place.cluster).await;

    configs(&place).delete("idp", &DeleteParams::default()).await.unwrap();
    join_all(kept.iter().map(|name| delete(&place, name))).await;
    wait_until("the configuration to go", MANY_DEADLINE, || async {
        configs(&place).get_opt("idp").await.unwrap().is_none().then_some(())
    })
    .await;
    referenced(&place, "other", &moved, DEADLINE).await;
    operator.idle(place.cluster).await;
}
