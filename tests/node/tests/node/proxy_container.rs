//! The containers in the pods of a guarded proxy, and what the status says of them.

use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use mcp_api::v1beta1::{MCPRemoteProxy, MCPServer, Phase};
use portcullis_node::greeter::{self, NAME};
use portcullis_node::{DEADLINE, Namespace, Node, POD_IMAGE, install_operator, kubectl};
use portcullis_testing::{apply_manifests, wait_for_object, wait_until};
use serde_json::{Value, json};

const PROXY: &str = "toolhive";
const GUARDS: &str = "toolhive.stacklok.dev/guards";

/// A guard for the servers of a namespace, and the member of their specs that asks for it.
async fn guard(namespace: &Namespace) -> Value {
    let config = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig", "metadata": { "name": "greet-only" },
        "spec": { "toolsFilter": ["greet"] },
    });
    namespace.apply([config]).await;
    json!({ "toolConfigRef": { "name": "greet-only" } })
}

fn is_enforced(conditions: Option<&Vec<Condition>>) -> bool {
    conditions.into_iter().flatten().any(|it| it.type_ == "GuardsEnforced" && it.status == "True")
}

async fn enforced(namespace: &Namespace, server: &str) {
    wait_for_object(&namespace.api::<MCPServer>(), server, "GuardsEnforced=True", DEADLINE, |server| {
        is_enforced(server.status.as_ref().and_then(|status| status.conditions.as_ref()))
    })
    .await;
}

/// Selects the proxy's pods of a workload; its server's pods have the workload's own name as `app`.
fn selector(workload: &str) -> ListParams {
    ListParams::default().labels(&format!("toolhive-name={workload},app in (mcpserver,mcpremoteproxy)"))
}

/// The proxy's containers in the pods of a workload.
async fn proxies(namespace: &Namespace, workload: &str) -> Vec<Container> {
    let pods = namespace.api::<Pod>().list(&selector(workload)).await.unwrap();
    let containers = pods.into_iter().flat_map(|pod| pod.spec.unwrap_or_default().containers);
    containers.filter(|container| container.name == PROXY).collect()
}

async fn is_answered(namespace: &Namespace, url: &str) {
    let caller = namespace.caller("stateless", 2, url, "Ada").await;
    caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    caller.finish().await;
}

// S5 (a)
#[tokio::test(flavor = "multi_thread")]
async fn a_template_does_not_replace_the_program_of_a_remote_proxy() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("template").await;
    let guard = guard(&namespace).await;
    let proxy = |container: Value| {
        let mut container = container;
        container["name"] = json!(PROXY);
        let init = json!({
            "name": "own", "image": POD_IMAGE, "imagePullPolicy": "Never", "args": ["webhook", "-help"],
            "volumeMounts": [{ "name": "own", "mountPath": "/own" }],
        });
        let mut spec = json!({
            "remoteUrl": "https://mcp.example.com/mcp",
            "podTemplateSpec": { "spec": {
                "containers": [container, { "name": "beside", "image": POD_IMAGE, "imagePullPolicy": "Never", "args": ["serve", ":9999"] }],
                "hostAliases": [{ "ip": "192.0.2.1", "hostnames": ["mcp.example.com"] }],
                "volumes": [{ "name": "own", "emptyDir": {} }],
            } },
        });
        spec["toolConfigRef"] = guard["toolConfigRef"].clone();
        if container["volumeMounts"].is_array() {
            spec["podTemplateSpec"]["spec"]["initContainers"] = json!([init]);
        }
        let object = json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPRemoteProxy", "metadata": { "name": "far" }, "spec": spec,
        });
        serde_json::from_value::<MCPRemoteProxy>(object).unwrap()
    };
    let api = namespace.api::<MCPRemoteProxy>();
    for path in ["/mcp-runner", "/etc/ssl/certs/ca-certificates.crt"] {
        let over = proxy(json!({ "volumeMounts": [{ "name": "own", "mountPath": path, "subPath": "own" }] }));
        let refused = api.create(&PostParams::default(), &over).await.unwrap_err().to_string();
        assert!(refused.contains("volumeMounts[0].mountPath"), "{path}: {refused}");
    }

    let hook = json!({ "postStart": { "exec": { "command": ["/mcp-runner", "--help"] } } });
    let without_effect =
        proxy(json!({ "command": ["/own/proxy"], "lifecycle": hook, "terminationMessagePath": "/mcp-runner" }));
    api.create(&PostParams::default(), &without_effect).await.unwrap();
    let made = wait_for_object(&api, "far", "GuardsEnforced=True", DEADLINE, |proxy| {
        is_enforced(proxy.status.as_ref().and_then(|status| status.conditions.as_ref()))
    })
    .await;
    let conditions = made.status.and_then(|status| status.conditions).unwrap_or_default();
    let template = conditions.iter().find(|it| it.type_ == "PodTemplateValid").unwrap();
    let names = ["hostAliases", "containers[0].command", "containers[0].lifecycle"];
    assert!(names.iter().all(|field| template.message.contains(field)), "{}", template.message);
    let pods = namespace.pods("far").await;
    let pod = namespace.pod(&pods[0]).await.spec.unwrap();
    assert!(pod.containers.len() == 2 && pod.host_aliases.is_none(), "{pod:?}");
    let own = pod.containers.into_iter().find(|container| container.name == PROXY).unwrap();
    assert_eq!((own.command, own.lifecycle), (Some(vec!["/mcp-runner".to_owned()]), None));
}

// S5 (b)
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_patched_into_a_proxy_is_taken_away() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("patched").await;
    let url = greeter::start(&namespace, guard(&namespace).await).await;
    enforced(&namespace, NAME).await;
    let own = json!({
        "name": PROXY, "command": ["/own/proxy-without-login"],
        "env": [{ "name": "SSL_CERT_FILE", "value": "/own/ca.crt" }],
        "lifecycle": { "postStart": { "exec": { "command": ["/own/x"] } } },
        "volumeMounts": [{ "name": "own", "mountPath": "/etc/ssl/certs" }],
    });
    let patch = json!({ "spec": { "template": { "spec": {
        "containers": [own], "volumes": [{ "name": "own", "emptyDir": {} }],
    } } } });
    let deployments = namespace.api::<Deployment>();
    let patched = deployments.patch(NAME, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let asked = patched.metadata.generation;
    wait_for_object(&deployments, NAME, "the foreign program to be gone", DEADLINE, |live| {
        let pod = live.spec.clone().and_then(|spec| spec.template.spec).unwrap_or_default();
        let own = pod.containers.iter().find(|container| container.name == PROXY);
        let mounts = own.into_iter().flat_map(|own| own.volume_mounts.iter().flatten());
        live.metadata.generation > asked
            && own.is_some_and(|own| own.command == Some(vec!["/mcp-runner".to_owned()]) && own.lifecycle.is_none())
            && mounts.into_iter().all(|mount| mount.name != "own")
    })
    .await;
    namespace.available(NAME).await;
    enforced(&namespace, NAME).await;
    for proxy in proxies(&namespace, NAME).await {
        assert_eq!(proxy.command, Some(vec!["/mcp-runner".to_owned()]), "{proxy:?}");
    }
    is_answered(&namespace, &url).await;
}

// S5 (c)
#[tokio::test(flavor = "multi_thread")]
async fn a_planted_proxy_does_not_count_as_guarded() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("planted").await;
    let guard = guard(&namespace).await;
    greeter::start(&namespace, guard.clone()).await;
    let deployments = namespace.api::<Deployment>();
    let template = deployments.get(NAME).await.unwrap().spec.unwrap().template.metadata.unwrap();
    let annotations = json!({ GUARDS: template.annotations.unwrap()[GUARDS] });
    let labels: Value = json!(template.labels.unwrap()).to_string().replace(NAME, "planted").parse().unwrap();
    let container = json!({
        "name": PROXY, "image": POD_IMAGE, "imagePullPolicy": "Never", "command": ["/pod"], "args": ["serve", ":8080"],
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
    });
    let planted = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "planted", "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels, "annotations": annotations }, "spec": { "containers": [container] } },
        },
    });
    namespace.apply([planted]).await;
    namespace.available("planted").await;
    namespace.apply([greeter::manifest("planted", greeter::STREAMABLE.spec(guard))]).await;
    let servers = namespace.api::<MCPServer>();
    wait_until("the planted proxy to be refused, or to be gone", DEADLINE, || async {
        // The status first: what it says was so before the pods are looked at.
        let status = servers.get("planted").await.ok()?.status?;
        let runs = proxies(&namespace, "planted").await.iter().any(|proxy| proxy.image.as_deref() == Some(POD_IMAGE));
        let enforced = is_enforced(status.conditions.as_ref());
        assert!(!(runs && enforced), "the planted proxy counts as guarded: {status:?}");
        (enforced || status.phase == Some(Phase::Failed)).then_some(())
    })
    .await;
    let _ = deployments.delete("planted", &DeleteParams::foreground()).await;
    enforced(&namespace, "planted").await;
}

/// The platform's own mirror has the image under its name, and pods get what service meshes and secret injectors add.
async fn inject(node: &Node, namespace: &Namespace) {
    let version = env!("CARGO_PKG_VERSION");
    let tag = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/node/tag-image.sh");
    let names = ["localhost", "mirror.local"].map(|registry| format!("{registry}/portcullis/mcp-runner:{version}"));
    let tagged = Command::new(tag).args(&names).status();
    assert!(tagged.is_ok_and(|status| status.success()), "no image {}", names[1]);
    let name = &namespace.name;
    let changes = format!(
        "Object{{spec: Object.spec{{
            containers: [Object.spec.containers{{name: '{PROXY}', image: '{}',
                env: [Object.spec.containers.env{{name: 'VAULT_ADDR', value: 'https://vault'}}],
                volumeMounts: [Object.spec.containers.volumeMounts{{name: 'vault', mountPath: '/vault/secrets'}}]}}],
            volumes: [Object.spec.volumes{{name: 'vault', emptyDir: Object.spec.volumes.emptyDir{{medium: 'Memory'}}}}]
        }}}}",
        names[1]
    );
    // An apply configuration may not set a list that has no keys, as `args` is one.
    let sidecar = format!(
        "[JSONPatch{{op: 'add', path: '/spec/containers/-', value: Object.spec.containers{{
            name: 'vault-agent', image: '{POD_IMAGE}', imagePullPolicy: 'Never', args: ['serve', ':9999']}}}}]"
    );
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
                "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
            },
            "matchConditions": [{ "name": "proxy", "expression": format!("object.spec.containers.exists(c, c.name == '{PROXY}')") }],
            "mutations": [
                { "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": changes } },
                { "patchType": "JSONPatch", "jsonPatch": { "expression": sidecar } },
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": name },
        "spec": { "policyName": name },
    });
    apply_manifests(&node.client, &[policy, binding]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_sidecars_and_mirrors_leave_guards_enforced() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("injected").await;
    let mut members = guard(&namespace).await;
    let vault = json!({
        "vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/role": "mcp",
        "vault.hashicorp.com/agent-inject-secret-token": "secret/mcp",
    });
    members["resourceOverrides"] =
        json!({ "proxyDeployment": { "podTemplateMetadataOverrides": { "annotations": vault } } });
    inject(&node, &namespace).await;
    let url = greeter::start(&namespace, members).await;
    // The API server follows policies by a watch: the first pod may be from before.
    wait_until("a pod with what is injected", DEADLINE, || async {
        let pods = namespace.api::<Pod>();
        let all = pods.list(&selector(NAME)).await.unwrap().items;
        let is_injected = |pod: &&Pod| {
            let mut images = pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|it| it.image.as_deref());
            images.any(|image| image.starts_with("mirror.local/"))
        };
        let (injected, before): (Vec<_>, Vec<_>) = all.iter().partition(is_injected);
        if before.is_empty() && !injected.is_empty() {
            return Some(());
        }
        // Each of them once: its successor is made as it goes.
        for pod in before.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let _ = pods.delete(pod.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await;
        }
        None
    })
    .await;
    namespace.available(NAME).await;
    enforced(&namespace, NAME).await;
    let pods = namespace.pods(NAME).await;
    let pod = namespace.pod(&pods[0]).await.spec.unwrap();
    assert!(pod.containers.iter().any(|container| container.name == "vault-agent"), "{pod:?}");
    is_answered(&namespace, &url).await;
    for kind in ["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"] {
        tokio::task::block_in_place(|| kubectl(&["delete", kind, &namespace.name]));
    }
}
