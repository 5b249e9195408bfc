//! MCPRemoteProxy on a real control plane: made, edited, at rest, deleted.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mcp_api::v1beta1::{MCPRemoteProxy, MCPToolConfig, RemoteProxyPhase};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::watch,
};

use super::{
    Place,
    support::{DEADLINE, children_of_remote, ready_pods_of, remote_proxy, tool_config, writes},
};

const API_VERSION: &str = "toolhive.stacklok.dev/v1beta1";
const APP: &str = "mcpremoteproxy";

fn secret(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"api": value}})
}

/// With annotations of users on each level, and a template for the pods.
fn overridden() -> Value {
    remote_proxy(
        "web",
        json!({
            "proxyPort": 8081, "toolConfigRef": {"name": "tools"},
            "headerForward": {
                "addPlaintextHeaders": {"X-Tenant": "acme"},
                "addHeadersFromSecret": [{"headerName": "X-Api-Key", "valueSecretRef": {"name": "keys", "key": "api"}}],
            },
            "resourceOverrides": {
                "proxyDeployment": {
                    "annotations": {"deploy/team": "core"}, "labels": {"deploy/tier": "gold"},
                    "podTemplateMetadataOverrides": {"annotations": {
                        "vault.hashicorp.com/agent-inject": "true",
                        "toolhive.stacklok.dev/runconfig-checksum": "forged",
                    }},
                },
                "proxyService": {"annotations": {"lb/internal": "true"}},
            },
            "podTemplateSpec": {
                "metadata": {"annotations": {"linkerd.io/inject": "enabled"}},
                "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [
                    {"name": "toolhive", "image": "other:1", "env": [{"name": "RUST_LOG", "value": "debug"}],
                     "resources": {"limits": {"memory": "1Gi"}}},
                ]},
            },
        }),
    )
}

async fn proxy(place: &Place, what: &str, condition: impl Fn(&MCPRemoteProxy) -> bool) -> MCPRemoteProxy {
    let proxies: Api<MCPRemoteProxy> = place.objects.api();
    wait_for_object(&proxies, "web", what, DEADLINE, condition).await
}

async fn phase(place: &Place, phase: RemoteProxyPhase) -> MCPRemoteProxy {
    proxy(place, phase.as_str(), |proxy| {
        let status = proxy.status.as_ref();
        status.and_then(|status| status.phase) == Some(phase)
            && status.and_then(|status| status.observed_generation) == proxy.metadata.generation
    })
    .await
}

fn annotation(deployment: &Value, key: &str) -> Value {
    deployment["spec"]["template"]["metadata"]["annotations"][key].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_with_every_override_is_made_and_then_nothing_is_written_until_something_changes() {
    let place = Place::new("remote").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(tool_config("tools", json!({"toolsFilter": ["fetch"]}))).await;
    objects.create(overridden()).await;
    let missing = phase(&place, RemoteProxyPhase::Failed).await.status.unwrap();
    let mut conditions = missing.conditions.iter().flatten();
    let said = conditions.find(|it| it.type_ == "ConfigurationValid").unwrap();
    assert_eq!((&*said.status, &*said.reason), ("False", "HeaderSecretNotFound"), "{said:?}");

    objects.create(secret("hunter2")).await;
    objects.has_children("web", &children_of_remote("web")).await;
    ready_pods_of(objects, APP, "web").await;
    let status = phase(&place, RemoteProxyPhase::Ready).await.status.unwrap();
    let url = format!("http://mcp-web-remote-proxy.{}.svc.cluster.local:8081", place.namespace());
    assert_eq!((status.url, status.message.as_deref()), (Some(url), Some("Remote proxy is running")));
    assert!(status.tool_config_hash.is_some());

    // As the API server shows it, annotations of users and of ours side by side.
    let made = objects.get(ChildKind::Deployment, "web").await;
    let checksum = annotation(&made, "toolhive.stacklok.dev/runconfig-checksum");
    assert_eq!(checksum.as_str().unwrap().len(), 64, "{checksum}");
    assert_eq!(annotation(&made, "vault.hashicorp.com/agent-inject"), "true");
    assert_eq!(annotation(&made, "linkerd.io/inject"), "enabled");
    assert_eq!(annotation(&made, "deploy/team"), Value::Null);
    assert_eq!(made["metadata"]["annotations"]["deploy/team"], "core");
    let pod = &made["spec"]["template"]["spec"];
    assert_ne!(pod["containers"][0]["image"], "other:1");
    assert_eq!(
        (&pod["nodeSelector"]["disk"], &pod["containers"][0]["resources"]["limits"]["memory"]),
        (&json!("ssd"), &json!("1Gi"))
    );
    let told = serde_json::to_string(&(&made, objects.get(ChildKind::ConfigMap, "web-runconfig").await)).unwrap();
    assert!(!told.contains("hunter2") && !operator.log().contains("hunter2"), "the value of a Secret is told");

    let since = operator.idle(place.cluster).await;
    for (kind, name) in children_of_remote("web") {
        let resource = kind.api_resource();
        let mark = json!({"metadata": {"labels": {"foreign": "yes"}, "annotations": {"foreign.example/seen": "yes"}}});
        objects.merge(&resource.api_version, &resource.kind, &name, mark).await;
    }
    operator.wrote_nothing(place.cluster, since, "at rest, after foreign labels and annotations").await;
    operator.terminate().await;
    let since = place.cluster.audit().mark();
    let operator = place.operator();
    operator.reconciles().await;
    operator.wrote_nothing(place.cluster, since, "after a restart").await;

    // An edit of the Secret rolls the pods once and changes nothing else.
    let generation = |deployment: &Value| deployment["metadata"]["generation"].as_i64().unwrap();
    let before = objects.get(ChildKind::Deployment, "web").await;
    let since = place.cluster.audit().mark();
    objects.merge("v1", "Secret", "keys", json!({"stringData": {"api": "hunter3"}})).await;
    let key = "toolhive.stacklok.dev/secrets-checksum";
    objects
        .child(ChildKind::Deployment, "web", "another digest", |now| annotation(now, key) != annotation(&before, key))
        .await;
    operator.idle(place.cluster).await;
    let after = objects.get(ChildKind::Deployment, "web").await;
    assert_eq!(generation(&after), generation(&before) + 1, "once");
    assert_eq!(annotation(&after, "toolhive.stacklok.dev/runconfig-checksum"), checksum, "the document is the same");
    let written = writes(place.cluster, &place.user, since).await;
    let children: Vec<_> =
        written.iter().filter(|it| it.contains("deployments") || it.contains("configmaps")).collect();
    assert_eq!(children.len(), 1, "{written:#?}");

    // So does an edit of the spec.
    let edit = json!({"spec": {"remoteUrl": "https://other.example.com/mcp"}});
    objects.merge(API_VERSION, "MCPRemoteProxy", "web", edit).await;
    let edited = objects
        .child(ChildKind::Deployment, "web", "another checksum", |now| {
            annotation(now, "toolhive.stacklok.dev/runconfig-checksum") != checksum
        })
        .await;
    operator.idle(place.cluster).await;
    assert_eq!(generation(&objects.get(ChildKind::Deployment, "web").await), generation(&edited), "once");
    assert_eq!(edited["metadata"]["labels"]["foreign"], "yes");
}

/// There is no finalizer of ours: the object goes at once, also where no operator runs, and its children after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_proxy_goes_at_once_with_its_children_and_releases_its_tool_config() {
    let place = Place::new("remote-gone").await;
    let operator = place.operator();
    let objects = &place.objects;
    let (proxies, configs): (Api<MCPRemoteProxy>, Api<MCPToolConfig>) = (objects.api(), objects.api());
    objects.create(tool_config("tools", json!({"toolsFilter": ["fetch"]}))).await;
    objects.create(remote_proxy("web", json!({"toolConfigRef": {"name": "tools"}}))).await;
    objects.has_children("web", &children_of_remote("web")).await;
    let made = phase(&place, RemoteProxyPhase::Pending).await;
    assert_eq!(made.metadata.finalizers, None);
    wait_for_object(&configs, "tools", "its referrer", DEADLINE, |config| {
        let workloads = config.status.as_ref().and_then(|status| status.referencing_workloads.as_deref());
        workloads.unwrap_or_default().iter().any(|it| (&*it.kind, &*it.name) == ("MCPRemoteProxy", "web"))
    })
    .await;
    configs.delete("tools", &DeleteParams::default()).await.unwrap();
    wait_for_object(&configs, "tools", "DeletionBlocked", DEADLINE, |config| {
        let mut conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|it| it.type_ == "DeletionBlocked" && it.message.contains("MCPRemoteProxies: web"))
    })
    .await;
    proxies.delete("web", &DeleteParams::default()).await.unwrap();
    for (kind, name) in children_of_remote("web") {
        objects.child(kind, &name, "to be gone", Value::is_null).await;
    }
    wait_until("the configuration to go", DEADLINE, || async {
        configs.get_opt("tools").await.unwrap().is_none().then_some(())
    })
    .await;

    objects.create(remote_proxy("web", json!({}))).await;
    objects.has_children("web", &children_of_remote("web")).await;
    operator.kill().await;
    proxies.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(proxies.get_opt("web").await.unwrap().is_none(), "nobody holds it");
    objects.child(ChildKind::Deployment, "web", "to be gone", Value::is_null).await;
}

/// Plays a proxy that reports this of its server.
async fn reporting(server: watch::Receiver<Value>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await.unwrap() > 0 {}
            assert!(request.starts_with(b"GET /health "), "{}", String::from_utf8_lossy(&request));
            let report = json!({"status": "healthy", "mcp": *server.borrow()});
            stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{report}").as_bytes()).await.unwrap();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_server_that_does_not_answer_is_told_and_its_proxy_stays_ready() {
    let place = Place::new("reach").await;
    let _operator = place.operator();
    let objects = &place.objects;
    let (server, report) = watch::channel(json!({"available": false, "error": "no answer within 5000 ms"}));
    let address = reporting(report).await;
    let checks = json!([{"name": "TOOLHIVE_REMOTE_HEALTHCHECKS", "value": "true"}]);
    let spec = json!({"proxyPort": address.port(), "resourceOverrides": {"proxyDeployment": {"env": checks}}});
    objects.create(remote_proxy("web", spec)).await;
    ready_pods_of(objects, APP, "web").await;
    let before = phase(&place, RemoteProxyPhase::Ready).await;
    let said = |proxy: &MCPRemoteProxy| {
        let conditions = proxy.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|it| it.type_ == "RemoteReachable").map(|it| (it.status, it.message))
    };
    assert_eq!(said(&before), None, "its pod has no address yet");
    let pods: Api<Pod> = objects.api();
    for pod in pods.list(&ListParams::default().labels("app=mcpremoteproxy")).await.unwrap() {
        let patch = Patch::Merge(json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}));
        pods.patch_status(&pod.metadata.name.unwrap(), &PatchParams::default(), &patch).await.unwrap();
    }
    let failing = proxy(&place, "RemoteReachable=False", |it| said(it).is_some_and(|said| said.0 == "False")).await;
    let message = said(&failing).unwrap().1;
    assert!(message.contains("no answer within 5000 ms") && message.contains("kubectl logs"), "{message}");
    assert_eq!(failing.status.as_ref().unwrap().phase, Some(RemoteProxyPhase::Ready));
    wait_until("an event", DEADLINE, || async {
        objects.events("MCPRemoteProxy", "web").await.contains(&"Warning NotAnswering".to_owned()).then_some(())
    })
    .await;

    // It is asked again although nothing of the proxy changes.
    server.send_replace(json!({"available": true}));
    proxy(&place, "RemoteReachable=True", |it| said(it).is_some_and(|said| said.0 == "True")).await;
    wait_until("an event", DEADLINE, || async {
        objects.events("MCPRemoteProxy", "web").await.contains(&"Normal Reached".to_owned()).then_some(())
    })
    .await;
}
