//! MCPTelemetryConfig on the API server: who refers to it, when it goes, and what rolls the proxies that use it.

use kube::{Api, api::DeleteParams};
use mcp_api::v1beta1::{MCPServer, MCPTelemetryConfig};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};

use super::{
    Operator, Place,
    support::{
        DEADLINE, children_of_remote, labelled, pem, reason_of, remote_proxy, telemetry_config, tool_config,
        virtual_server,
    },
};

const API_VERSION: &str = "toolhive.stacklok.dev/v1beta1";
const KIND: &str = "MCPTelemetryConfig";

fn configs(place: &Place) -> Api<MCPTelemetryConfig> {
    place.objects.api()
}

fn reference(name: &str) -> Value {
    json!({"telemetryConfigRef": {"name": name}})
}

fn validated<'a>(server: &'a MCPServer, status: &str) -> Option<&'a str> {
    reason_of(server, "TelemetryConfigRefValidated", status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_that_refer_to_it_block_its_deletion() {
    let place = Place::new("telemetry-referenced").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(telemetry_config("traces", json!({}))).await;
    let config = objects.referenced(KIND, "traces", &[]).await;
    let finalizer = "mcptelemetryconfig.toolhive.stacklok.dev/finalizer".to_owned();
    assert_eq!(config.metadata.finalizers, Some(vec![finalizer]));
    objects.create(labelled("web", reference("traces"))).await;
    objects.create(remote_proxy("far", reference("traces"))).await;
    let mut all = virtual_server("all", "absent", "absent");
    all["spec"]["telemetryConfigRef"] = json!({"name": "traces"});
    objects.create(all).await;
    let workloads = [("MCPRemoteProxy", "far"), ("MCPServer", "web"), ("VirtualMCPServer", "all")];
    let hash = objects.referenced(KIND, "traces", &workloads).await.data["status"]["configHash"].clone();
    for (kind, name) in workloads {
        let told = |it: &kube::api::DynamicObject| it.data["status"]["telemetryConfigHash"] == hash;
        wait_for_object(&objects.dynamic(API_VERSION, kind), name, "telemetryConfigHash", DEADLINE, told).await;
    }

    configs(&place).delete("traces", &DeleteParams::default()).await.unwrap();
    let blocked = |config: &MCPTelemetryConfig| {
        let mut conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let message = "Cannot delete: referenced by MCPRemoteProxies: far; MCPServers: web; VirtualMCPServers: all";
        conditions.any(|it| it.type_ == "DeletionBlocked" && it.message == message)
    };
    wait_for_object(&configs(&place), "traces", "DeletionBlocked", DEADLINE, blocked).await;
    for (kind, name, left) in
        [("MCPServer", "web", vec![workloads[0], workloads[2]]), ("MCPRemoteProxy", "far", vec![workloads[2]])]
    {
        objects.merge(API_VERSION, kind, name, json!({"spec": {"telemetryConfigRef": null}})).await;
        objects.referenced(KIND, "traces", &left).await;
    }
    let server = objects.server("web", "no telemetry", |it| validated(it, "True").is_none()).await;
    assert_eq!(server.status.unwrap().telemetry_config_hash, None);
    objects.dynamic(API_VERSION, "VirtualMCPServer").delete("all", &DeleteParams::default()).await.unwrap();
    wait_until("the configuration to go", DEADLINE, || async {
        configs(&place).get_opt("traces").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_that_comes_with_the_deletion_holds_it_or_finds_nothing() {
    let place = Place::new("telemetry-race").await;
    let operator = place.operator();
    let objects = &place.objects;
    for round in 0..4 {
        objects.create(telemetry_config("traces", json!({}))).await;
        objects.referenced(KIND, "traces", &[]).await;
        let (api, gone) = (configs(&place), DeleteParams::default());
        let name = format!("web{round}");
        tokio::join!(
            async { api.delete("traces", &gone).await.unwrap() },
            objects.create(labelled(&name, reference("traces")))
        );
        operator.idle(place.cluster).await;
        let is_held = configs(&place).get_opt("traces").await.unwrap().is_some();
        let server = objects.servers().get(&name).await.unwrap();
        let said = validated(&server, if is_held { "True" } else { "False" });
        let expected = if is_held { "TelemetryConfigRefValid" } else { "TelemetryConfigRefNotFound" };
        assert_eq!(said, Some(expected), "held: {is_held}");
        objects.servers().delete(&name, &gone).await.unwrap();
        wait_until("the configuration to go", DEADLINE, || async {
            configs(&place).get_opt("traces").await.unwrap().is_none().then_some(())
        })
        .await;
    }
}

/// An object of this kind with this data.
fn named(kind: &str, name: &str, data: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    object.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
    object
}

/// The uid of the proxy's Deployment, its template, and how often it was written.
async fn proxy(place: &Place, name: &str) -> (Value, Value, i64) {
    let live = place.objects.get(ChildKind::Deployment, name).await;
    let generation = live["metadata"]["generation"].as_i64().unwrap();
    (live["metadata"]["uid"].clone(), live["spec"]["template"].clone(), generation)
}

/// Waits until the Deployment is written anew, and the operator is idle: it is the same one, and was written once.
async fn rolled_once((place, operator): (&Place, &Operator), name: &str, before: &(Value, Value, i64), what: &str) {
    let rolled = |live: &Value| !live.is_null() && live["spec"]["template"] != before.1;
    place.objects.child(ChildKind::Deployment, name, what, rolled).await;
    operator.idle(place.cluster).await;
    let (uid, _, generation) = proxy(place, name).await;
    assert_eq!((&uid, generation), (&before.0, before.2 + 1), "{what}: {name} rolls once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_collector_rolls_each_deployment_once() {
    let place = Place::new("telemetry-rolls").await;
    let operator = place.operator();
    let objects = &place.objects;
    let secret = |value: &str| json!({"stringData": {"token": value}});
    let bundle = |bundles: usize| json!({"data": {"ca.crt": pem::authority().repeat(bundles)}});
    for (kind, name, data) in [("Secret", "otel", secret("hunter2")), ("ConfigMap", "otel-ca", bundle(1))] {
        objects.create(named(kind, name, &data)).await;
    }
    let header = json!({"name": "X-Api-Key", "secretKeyRef": {"name": "otel", "key": "token"}});
    let collector = json!({
        "sensitiveHeaders": [header], "caBundleRef": {"configMapRef": {"name": "otel-ca", "key": "ca.crt"}},
    });
    objects.create(telemetry_config("traces", collector)).await;
    objects.create(tool_config("tools", json!({"toolsFilter": ["echo"]}))).await;
    let guard = json!({"toolConfigRef": {"name": "tools"}});
    objects.create(labelled("web", guard.clone())).await;
    objects.create(remote_proxy("far", guard)).await;
    objects.has_children("far", &children_of_remote("far")).await;
    objects.child(ChildKind::Deployment, "web", "to come", |it| !it.is_null()).await;
    operator.idle(place.cluster).await;

    let workloads = [("MCPServer", "web"), ("MCPRemoteProxy", "far")];
    let parts = (&place, &operator);
    let edit = async |what: &str, apply: &dyn Fn(&str) -> Value| {
        for (kind, name) in workloads {
            let before = proxy(&place, name).await;
            let spec = apply(name);
            objects.merge(API_VERSION, kind, name, json!({"spec": spec})).await;
            rolled_once(parts, name, &before, what).await;
        }
    };
    edit("added", &|_| reference("traces")).await;
    edit("named", &|name| json!({"telemetryConfigRef": {"serviceName": format!("{name}-service")}})).await;
    let changes = [
        ("another token", "v1", "Secret", "otel", secret("hunter3")),
        (
            "another collector",
            API_VERSION,
            KIND,
            "traces",
            json!({"spec": {"openTelemetry": {"endpoint": "other:4318"}}}),
        ),
    ];
    for (what, version, kind, name, change) in changes {
        let before = (proxy(&place, "web").await, proxy(&place, "far").await);
        objects.merge(version, kind, name, change).await;
        rolled_once(parts, "web", &before.0, what).await;
        rolled_once(parts, "far", &before.1, what).await;
    }
    // Neither another CA, which proxies read themselves, nor a configuration that becomes unusable changes anything that runs.
    let before = (proxy(&place, "web").await, proxy(&place, "far").await);
    objects.merge("v1", "ConfigMap", "otel-ca", json!({"data": {"ca.crt": "no PEM"}})).await;
    let web = objects.server("web", "to say so", |it| validated(it, "False").is_some()).await;
    assert_eq!(validated(&web, "False"), Some("TelemetryConfigRefInvalid"));
    operator.idle(place.cluster).await;
    assert_eq!((proxy(&place, "web").await, proxy(&place, "far").await), before);
    objects.merge("v1", "ConfigMap", "otel-ca", bundle(2)).await;
    objects.server("web", "to be well again", |it| validated(it, "True").is_some()).await;
    operator.idle(place.cluster).await;
    assert_eq!((proxy(&place, "web").await, proxy(&place, "far").await), before);
    // Nor does a Secret that goes and comes back.
    objects.dynamic("v1", "Secret").delete("otel", &DeleteParams::default()).await.unwrap();
    objects.server("web", "to miss it", |it| validated(it, "False").is_some()).await;
    operator.idle(place.cluster).await;
    assert_eq!((proxy(&place, "web").await, proxy(&place, "far").await), before);
    objects.create(named("Secret", "otel", &secret("hunter3"))).await;
    objects.server("web", "to be well again", |it| validated(it, "True").is_some()).await;
    operator.idle(place.cluster).await;
    assert_eq!((proxy(&place, "web").await, proxy(&place, "far").await), before);
    edit("removed", &|_| json!({"telemetryConfigRef": null})).await;

    for (kind, name) in workloads {
        let events = objects.events(kind, name).await;
        assert!(!events.iter().any(|event| event.contains("ProxyRemoved")), "{events:?}");
    }
    assert!(!operator.log().contains("hunter"));
}
