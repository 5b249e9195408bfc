//! O1, O4 and R1 for MCPOIDCConfig: who refers to it, when it goes, and whose pods an edit rolls.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use mcp_api::v1beta1::{MCPOIDCConfig, MCPServer};
use mcp_operator::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};

use crate::{
    Place,
    support::{
        DEADLINE, children_of, labelled, minimal, nothing_written, oidc_config, pem, quiet, ready_pods, remote_proxy,
    },
};

const API_VERSION: &str = "toolhive.stacklok.dev/v1beta1";
/// Until what many workloads cause has settled, on a busy machine.
const MANY_DEADLINE: Duration = Duration::from_mins(6);

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

/// Waits until these are its referrers: servers by their names, remote proxies with `far-` before those.
async fn referenced(place: &Place, config: &str, workloads: &[String], deadline: Duration) -> MCPOIDCConfig {
    let kind = |name: &str| if name.starts_with("far-") { "MCPRemoteProxy" } else { "MCPServer" };
    let wanted: Vec<_> = workloads.iter().map(|name| (kind(name), &**name)).collect();
    wait_for_object(&configs(place), config, &format!("{} referrers", workloads.len()), deadline, |config| {
        config.status.is_some() && referrers(config) == wanted
    })
    .await
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|&name| name.to_owned()).collect()
}

fn condition<'a>(server: &'a MCPServer, type_: &str) -> Option<(&'a str, &'a str)> {
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

/// The template of a server's proxy, and how often it was written.
async fn proxy(place: &Place, server: &str) -> (Value, i64) {
    let live = place.objects.get(ChildKind::Deployment, server).await;
    (live["spec"]["template"].clone(), live["metadata"]["generation"].as_i64().unwrap())
}

/// Waits until the proxy of `server` is written anew, and all is quiet; then it was written once, and the others' were not.
async fn rolled_alone(place: &Place, server: &str, before: &[(&str, (Value, i64))], what: &str) {
    let find = |name: &str| &before.iter().find(|(found, _)| *found == name).unwrap().1;
    let old = find(server);
    place
        .objects
        .child(ChildKind::Deployment, server, what, |live| !live.is_null() && live["spec"]["template"] != old.0)
        .await;
    quiet(place.cluster, &place.user).await;
    for (name, (template, generation)) in before {
        let now = proxy(place, name).await;
        if *name == server {
            assert_eq!(now.1, generation + 1, "{what}: {name} rolls once");
        } else {
            assert_eq!((&now.0, now.1), (template, *generation), "{what}: {name} stays");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_rolls_the_proxies_that_it_concerns_once_and_a_new_ca_none() {
    const SERVERS: [&str; 3] = ["web", "other", "open"];
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
    for name in SERVERS {
        objects.has_children(name, &children_of(name)).await;
        ready_pods(objects, name).await;
        objects.phase(name, "Ready").await;
    }
    let web = objects.server("web", "its guard in force", |it| condition(it, "GuardsEnforced").is_some()).await;
    assert_eq!(condition(&web, "OIDCConfigRefValidated"), Some(("True", "OIDCConfigRefValid")));
    assert_eq!(condition(&web, "CABundleRefValidated"), Some(("True", "CABundleRefValid")));
    let config = configs(&place).get("idp").await.unwrap();
    assert_eq!(web.status.unwrap().oidc_config_hash, config.status.unwrap().config_hash);

    let now = async || {
        let mut all = Vec::new();
        for name in SERVERS {
            all.push((name, proxy(&place, name).await));
        }
        all
    };
    let since = quiet(place.cluster, &place.user).await;
    let bundle = json!({"data": {"ca.crt": format!("{}{}", pem::authority(), pem::authority())}});
    objects.merge("v1", "ConfigMap", "idp-ca", bundle).await;
    nothing_written(place.cluster, &place.user, since, Duration::from_secs(4), "a new CA reaches what runs").await;

    let before = now().await;
    objects.merge("v1", "Secret", "client", json!({"stringData": {"secret": "hunter3"}})).await;
    rolled_alone(&place, "web", &before, "another client secret").await;

    let before = now().await;
    let edit = json!({"spec": {"inline": {"jwksUrl": "https://idp.example.com/keys"}}});
    objects.merge(API_VERSION, "MCPOIDCConfig", "idp", edit).await;
    rolled_alone(&place, "web", &before, "another configuration").await;

    let before = now().await;
    objects.edit("other", json!({"oidcConfigRef": {"audience": "another"}})).await;
    rolled_alone(&place, "other", &before, "another audience").await;

    // What becomes unusable stops no proxy that has it.
    let before = now().await;
    objects.merge("v1", "ConfigMap", "idp-ca", json!({"data": {"ca.crt": "no PEM"}})).await;
    let web = objects.phase("web", "Failed").await;
    assert_eq!(condition(&web, "CABundleRefValidated"), Some(("False", "CABundleRefInvalid")));
    assert_eq!(now().await, before);
    assert!(!operator.log().contains("hunter"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_login_takes_an_open_proxy_down_and_gives_it_back_once_it_is_mended() {
    let place = Place::new("oidc-broken").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    objects.has_children("web", &children_of("web")).await;
    ready_pods(objects, "web").await;
    objects.phase("web", "Ready").await;
    objects.edit("web", json!({"oidcConfigRef": {"name": "idp", "audience": "web"}})).await;
    let gone = async || {
        objects.child(ChildKind::Deployment, "web", "to be gone", Value::is_null).await;
        let pods: Api<Pod> = objects.api();
        let selector = ListParams::default().labels("app=mcpserver,toolhive-name=web");
        wait_until("the open pods to go", DEADLINE, || async {
            pods.list(&selector).await.unwrap().items.is_empty().then_some(())
        })
        .await;
    };
    gone().await;
    let says =
        |reason: &'static str| move |it: &MCPServer| condition(it, "OIDCConfigRefValidated") == Some(("False", reason));
    objects.server("web", "no such configuration", says("OIDCConfigRefNotFound")).await;
    let secret = json!({"clientId": "mcp", "clientSecretRef": {"name": "client", "key": "secret"}});
    objects.create(oidc_config("idp", secret)).await;
    objects.server("web", "no such Secret", says("OIDCConfigRefError")).await;
    assert!(objects.get(ChildKind::Deployment, "web").await.is_null());
    create_client_secret(&place).await;
    objects.has_children("web", &children_of("web")).await;
    let (template, _) = proxy(&place, "web").await;
    let guards = &template["metadata"]["annotations"]["toolhive.stacklok.dev/guards"];
    assert!(guards.as_str().is_some_and(|guards| guards.starts_with("MCPOIDCConfig/idp/")), "{guards}");
}

/// O1, R3: they refer to it at once, and all of them together; then nothing is written, also after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_servers_on_one_config_are_listed_and_then_nothing_is_written() {
    const SERVERS: usize = 200;
    let place = Place::new("oidc-many").await;
    let operator = place.operator();
    operator.reconciles().await;
    place.objects.create(oidc_config("idp", json!({}))).await;
    let all: Vec<String> = (0..SERVERS).map(|at| format!("s{at:03}")).collect();
    // Without pods, whose controllers would take most of the time.
    let stopped = |name: &String| {
        let mut server = guarded(name, "idp");
        server["spec"]["replicas"] = json!(0);
        server["spec"]["backendReplicas"] = json!(0);
        server
    };
    join_all(all.iter().map(|name| place.objects.create(stopped(name)))).await;
    referenced(&place, "idp", &all, MANY_DEADLINE).await;
    wait_until("every server to have its proxy", MANY_DEADLINE, || async {
        let servers = place.objects.servers().list(&ListParams::default()).await.unwrap();
        let stopped = |server: &MCPServer| {
            let phase = server.status.as_ref().and_then(|status| status.phase);
            phase.is_some_and(|phase| phase.as_str() == "Stopped")
        };
        servers.iter().all(stopped).then_some(())
    })
    .await;
    let since = quiet(place.cluster, &place.user).await;
    nothing_written(place.cluster, &place.user, since, Duration::from_secs(10), "at rest").await;
    operator.terminate().await;
    let since = place.cluster.audit().mark();
    let operator = place.operator();
    operator.reconciles().await;
    nothing_written(place.cluster, &place.user, since, Duration::from_secs(10), "after a restart").await;

    let (gone, rest) = all.split_at(SERVERS / 2);
    let servers = place.objects.servers();
    for name in gone {
        servers.delete(name, &DeleteParams::default()).await.unwrap();
    }
    referenced(&place, "idp", rest, MANY_DEADLINE).await;
}
