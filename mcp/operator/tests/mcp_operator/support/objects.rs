//! Objects that tests make, and questions about those that the operator made.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    client::Body,
    core::{GroupVersionKind, Status},
};
use mcp_api::{v1alpha1::MCPWebhookConfig, v1beta1::MCPServer};
use mcp_plan::workload::ChildKind;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use portcullis_pki::Pair;

use super::{DEADLINE, pem};

/// An answer of the API server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

/// One namespace, as its administrator sees it.
#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Objects {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn servers(&self) -> Api<MCPServer> {
        self.api()
    }

    pub(crate) fn configs(&self) -> Api<MCPWebhookConfig> {
        self.api()
    }

    /// Any namespaced object.
    pub(crate) fn dynamic(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(crate) fn children(&self, kind: ChildKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.api_resource())
    }

    /// Creates `object`.
    pub(crate) async fn create(&self, object: Value) {
        self.try_create(object.clone()).await.unwrap_or_else(|error| panic!("{error}: {object}"));
    }

    /// Creates `object`, or says why it was refused.
    pub(crate) async fn try_create(&self, object: Value) -> Result<DynamicObject, Status> {
        let api = self.dynamic(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        match api.create(&PostParams::default(), &object).await {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) => Err(*status),
            Err(error) => panic!("{error}"),
        }
    }

    /// Posts `object` as kubectl does, and returns everything that was answered.
    pub(crate) async fn post(&self, object: Value, dry_run: bool) -> Answer {
        let api = self.dynamic(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let query = if dry_run { "?dryRun=All" } else { "" };
        let request = http::Request::post(format!("{}{query}", api.resource_url()));
        self.send(request.header("content-type", "application/json"), &object).await
    }

    /// Merges `patch` into an object of ours, and returns everything that was answered.
    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) -> Answer {
        let version = if kind == "MCPServer" { "v1beta1" } else { "v1alpha1" };
        let api = self.dynamic(&format!("toolhive.stacklok.dev/{version}"), kind);
        let request = http::Request::patch(format!("{}/{name}", api.resource_url()));
        self.send(request.header("content-type", "application/merge-patch+json"), &patch).await
    }

    async fn send(&self, request: http::request::Builder, body: &Value) -> Answer {
        let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        // As kubectl prints them: the text between the quotes.
        let text = |value: &http::HeaderValue| value.to_str().unwrap().replace("\\\"", "\"");
        let warnings = response.headers().get_all("warning").iter().map(text).collect();
        let bytes = response.into_body().collect_bytes().await.unwrap();
        Answer { code, warnings, body: serde_json::from_slice(&bytes).unwrap() }
    }

    /// Waits until the configuration's conditions fulfil `condition`.
    pub(crate) async fn config(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&[Condition]) -> bool,
    ) -> MCPWebhookConfig {
        portcullis_testing::wait_for_object(&self.configs(), name, what, DEADLINE, |config| {
            let conditions = config.status.as_ref().and_then(|status| status.conditions.as_deref());
            condition(conditions.unwrap_or_default())
        })
        .await
    }

    /// Merges `patch` into an object, as some client that is not the operator.
    pub(crate) async fn merge(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let params = PatchParams { field_manager: Some("somebody-else".to_owned()), ..PatchParams::default() };
        self.dynamic(api_version, kind)
            .patch(name, &params, &Patch::Merge(&patch))
            .await
            .unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }

    /// Merges `patch` into the spec of a server.
    pub(crate) async fn edit(&self, server: &str, spec: Value) {
        self.merge("toolhive.stacklok.dev/v1beta1", "MCPServer", server, json!({"spec": spec})).await;
    }

    /// The object as JSON; null when there is none.
    pub(crate) async fn get(&self, kind: ChildKind, name: &str) -> Value {
        let object = self.children(kind).get_opt(name).await.unwrap();
        object.map(|object| serde_json::to_value(object).unwrap()).unwrap_or_default()
    }

    /// Waits until the child fulfils `condition`; null stands for "does not exist".
    pub(crate) async fn child(
        &self,
        kind: ChildKind,
        name: &str,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        wait_until(&format!("{kind:?} {name}: {what}"), DEADLINE, || async {
            let object = self.get(kind, name).await;
            condition(&object).then_some(object)
        })
        .await
    }

    /// Waits until the server fulfils `condition`.
    pub(crate) async fn server(&self, name: &str, what: &str, condition: impl Fn(&MCPServer) -> bool) -> MCPServer {
        portcullis_testing::wait_for_object(&self.servers(), name, what, DEADLINE, condition).await
    }

    /// Waits until the status of the configuration of this kind and name lists these workloads.
    pub(crate) async fn referenced(&self, kind: &str, name: &str, workloads: &[(&str, &str)]) -> DynamicObject {
        let wanted: Vec<_> = workloads.iter().map(|(kind, name)| json!({"kind": kind, "name": name})).collect();
        let (what, api) =
            (format!("{workloads:?} in referencingWorkloads"), self.dynamic("toolhive.stacklok.dev/v1beta1", kind));
        portcullis_testing::wait_for_object(&api, name, &what, DEADLINE, |config| {
            let status = &config.data["status"];
            let found = status["referencingWorkloads"].as_array().cloned().unwrap_or_default();
            !status.is_null() && found == wanted
        })
        .await
    }

    /// Waits until the server's status has this phase.
    pub(crate) async fn phase(&self, name: &str, phase: &str) -> MCPServer {
        self.server(name, phase, |server| {
            let status = server.status.as_ref();
            status.and_then(|status| status.phase).is_some_and(|found| found.as_str() == phase)
                && status.and_then(|status| status.observed_generation) == server.metadata.generation
        })
        .await
    }

    /// Waits until all these children of `server` exist, each with its digest.
    pub(crate) async fn has_children(&self, server: &str, children: &[(ChildKind, String)]) {
        for (kind, name) in children {
            self.child(*kind, name, &format!("to exist for {server}"), |child| !child.is_null()).await;
        }
    }

    pub(crate) async fn delete_namespace(&self) {
        Api::<Namespace>::all(self.client.clone()).delete(&self.namespace, &DeleteParams::default()).await.unwrap();
    }

    /// Types and reasons of the events about an object.
    pub(crate) async fn events(&self, kind: &str, name: &str) -> Vec<String> {
        let events: Api<k8s_openapi::api::events::v1::Event> = self.api();
        let list = events.list(&ListParams::default()).await.unwrap();
        let about = list.into_iter().filter(|event| {
            let regarding = event.regarding.clone().unwrap_or_default();
            regarding.kind.as_deref() == Some(kind) && regarding.name.as_deref() == Some(name)
        });
        about.map(|event| format!("{} {}", event.type_.unwrap(), event.reason.unwrap())).collect()
    }
}

/// The reason of the server's condition of this type, where it has this status.
pub(crate) fn reason_of<'a>(server: &'a MCPServer, condition: &str, status: &str) -> Option<&'a str> {
    let mut conditions = server.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|it| it.type_ == condition && it.status == status).map(|it| &*it.reason)
}

/// A server with nothing but an image.
pub(crate) fn minimal(name: &str) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": {"name": name},
        "spec": {"image": "localhost/everything:1", "transport": "streamable-http", "mcpPort": 3001},
    })
}

/// A server with these members in its spec besides.
pub(crate) fn labelled(name: &str, spec: Value) -> Value {
    let mut server = minimal(name);
    for (key, value) in spec.as_object().unwrap() {
        server["spec"][key] = value.clone();
    }
    server
}

/// A configuration with one validating webhook and these members in it besides.
pub(crate) fn webhook_config(name: &str, webhook: Value) -> Value {
    let mut all = json!({"name": "policy", "url": "https://policy.example.svc/check"});
    for (key, value) in webhook.as_object().unwrap() {
        all[key] = value.clone();
    }
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": {"name": name},
        "spec": {"validating": [all]},
    })
}

/// A configuration of a provider with these members besides.
pub(crate) fn oidc_config(name: &str, provider: Value) -> Value {
    let mut inline = json!({"issuer": "https://idp.example.com"});
    for (key, value) in provider.as_object().unwrap() {
        inline[key] = value.clone();
    }
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPOIDCConfig", "metadata": {"name": name},
        "spec": {"type": "inline", "inline": inline},
    })
}

/// A virtual server whose callers log in as `idp` says, with the tools that `tools` chooses.
pub(crate) fn virtual_server(name: &str, idp: &str, tools: &str) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "VirtualMCPServer", "metadata": {"name": name},
        "spec": {
            "groupRef": {"name": "group"},
            "incomingAuth": {"type": "oidc", "oidcConfigRef": {"name": idp, "audience": name}},
            "config": {"aggregation": {"tools": [{"workload": "git", "toolConfigRef": {"name": tools}}]}},
        },
    })
}

/// A configuration of traces and metrics with this collector.
pub(crate) fn telemetry_config(name: &str, collector: Value) -> Value {
    let mut all = json!({"enabled": true, "endpoint": "otel:4318", "tracing": {"enabled": true}});
    all.as_object_mut().unwrap().extend(collector.as_object().unwrap().clone());
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPTelemetryConfig", "metadata": {"name": name},
        "spec": {"openTelemetry": all},
    })
}

/// A configuration of who may call what, by these policies.
pub(crate) fn authz_config(name: &str, policies: &[&str]) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPAuthzConfig", "metadata": {"name": name},
        "spec": {"type": "cedarv1", "config": {"policies": policies}},
    })
}

/// A configuration of the credential that a server gets.
pub(crate) fn external_auth_config(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPExternalAuthConfig", "metadata": {"name": name},
        "spec": spec,
    })
}

/// The spec of one that exchanges tokens, with these members besides.
pub(crate) fn exchange(change: Value) -> Value {
    let mut exchange = json!({"tokenUrl": "https://idp.example.com/token", "audience": "backend"});
    exchange.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!({"type": "tokenExchange", "tokenExchange": exchange})
}

/// The spec of one that is an authorization server.
pub(crate) fn auth_server() -> Value {
    let oidc = json!({"clientId": "server", "issuerUrl": "https://idp.example.com"});
    json!({"type": "embeddedAuthServer", "embeddedAuthServer": {
        "issuer": "https://auth.example.com",
        "upstreamProviders": [{"name": "idp", "type": "oidc", "oidcConfig": oidc}],
    }})
}

/// A ConfigMap with a document of such policies.
pub(crate) fn policies(name: &str, policies: &[&str]) -> Value {
    let document = json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": policies}});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"authz.json": document.to_string()},
    })
}

/// A configuration of the tools that clients see.
pub(crate) fn tool_config(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig", "metadata": {"name": name}, "spec": spec,
    })
}

/// What a server with every override refers to, and the server.
pub(crate) fn every_override(name: &str) -> Vec<Value> {
    let Pair { cert_pem, key_pem } = pem::client();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{name}-keys")},
        "stringData": {
            "hmac": "key-bytes", "ca.crt": pem::authority(), "tls.crt": cert_pem, "tls.key": key_pem, "token": "t",
        },
    });
    let profile = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-profile")},
        "data": {"profile.json": r#"{"network": {"outbound": {"insecure_allow_all": true}}}"#},
    });
    let reference = |key: &str| json!({"name": format!("{name}-keys"), "key": key});
    let mut config = webhook_config(&format!("{name}-gate"), json!({"hmacSecretRef": reference("hmac")}));
    config["spec"]["mutating"] = json!([{
        "name": "add-user", "url": "https://mutate.example.svc/hook", "timeout": "5s", "failurePolicy": "ignore",
        "tlsConfig": {
            "caSecretRef": reference("ca.crt"),
            "clientCertSecretRef": reference("tls.crt"),
            "clientKeySecretRef": reference("tls.key"),
        },
    }]);
    let server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": {"name": name},
        "spec": {
            "image": "localhost/everything:1", "transport": "streamable-http", "mcpPort": 3001, "proxyPort": 8090,
            "args": ["--verbose", ""], "env": [{"name": "B", "value": "2"}, {"name": "A", "value": ""}],
            "secrets": [{"name": format!("{name}-keys"), "key": "token", "targetEnvName": "TOKEN"}],
            "volumes": [{"name": "data", "hostPath": "/srv/data", "mountPath": "/data", "readOnly": true}],
            "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "0.1", "memory": "134217728"}},
            "replicas": 2, "backendReplicas": 1, "sessionAffinity": "None", "endpointPrefix": "/mcp", "trustProxyHeaders": true,
            "permissionProfile": {"type": "configmap", "name": format!("{name}-profile"), "key": "profile.json"},
            "webhookConfigRef": {"name": format!("{name}-gate")},
            "resourceOverrides": {
                "proxyDeployment": {
                    "annotations": {"deploy/team": "core"}, "labels": {"deploy/tier": "gold"},
                    "env": [{"name": "TOOLHIVE_DEBUG", "value": "true"}],
                    "imagePullSecrets": [{"name": "pull-a"}],
                    "podTemplateMetadataOverrides": {
                        "annotations": {
                            "vault.hashicorp.com/agent-inject": "true",
                            "toolhive.stacklok.dev/runconfig-checksum": "forged",
                        },
                        "labels": {"sidecar": "vault"},
                    },
                },
                "proxyService": {"annotations": {"lb/internal": "true"}, "labels": {"svc/tier": "gold"}},
            },
            "podTemplateSpec": {"spec": {
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "mcp", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [{"name": "mcp", "resources": {"limits": {"ephemeral-storage": "1Gi"}}}],
            }},
        },
    });
    vec![secret, profile, config, server]
}

/// The children of a streamable-http server.
pub(crate) fn children_of(server: &str) -> Vec<(ChildKind, String)> {
    vec![
        (ChildKind::ServiceAccount, format!("{server}-proxy-runner")),
        (ChildKind::ServiceAccount, format!("{server}-sa")),
        (ChildKind::ConfigMap, format!("{server}-runconfig")),
        (ChildKind::Service, format!("mcp-{server}")),
        (ChildKind::Service, format!("mcp-{server}-headless")),
        (ChildKind::Service, format!("mcp-{server}-proxy")),
        (ChildKind::NetworkPolicy, format!("mcp-{server}")),
        (ChildKind::StatefulSet, server.to_owned()),
        (ChildKind::Deployment, server.to_owned()),
    ]
}

/// A proxy in front of a server that runs elsewhere, with these members in its spec besides.
pub(crate) fn remote_proxy(name: &str, spec: Value) -> Value {
    let mut proxy = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPRemoteProxy", "metadata": {"name": name},
        "spec": {"remoteUrl": "https://mcp.example.com/mcp"},
    });
    for (key, value) in spec.as_object().unwrap() {
        proxy["spec"][key] = value.clone();
    }
    proxy
}

/// The children of such a proxy.
pub(crate) fn children_of_remote(proxy: &str) -> Vec<(ChildKind, String)> {
    vec![
        (ChildKind::ServiceAccount, format!("{proxy}-remote-proxy-runner")),
        (ChildKind::ConfigMap, format!("{proxy}-runconfig")),
        (ChildKind::Service, format!("mcp-{proxy}-remote-proxy")),
        (ChildKind::Deployment, proxy.to_owned()),
    ]
}

/// Plays the node: waits for the pods of an MCPServer and of its proxy, and says they run and are ready.
pub(crate) async fn ready_pods(objects: &Objects, server: &str) {
    ready_pods_of(objects, "mcpserver", server).await;
}

/// The same for the workload of the kind whose proxies are labelled `app`.
pub(crate) async fn ready_pods_of(objects: &Objects, app: &str, workload: &str) {
    if app == "mcpserver" {
        let selector = format!("toolhive-basename={workload}");
        wait_until("pods of the server", DEADLINE, || run(objects, &selector, "mcp", is_new)).await;
        let objects = objects.clone();
        // Pods that take their place as well, until the test ends.
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                run(&objects, &selector, "mcp", is_new).await;
            }
        });
    }
    let selector = format!("app={app},toolhive-name={workload}");
    wait_until("pods of the proxy", DEADLINE, || run(objects, &selector, "toolhive", |_| true)).await;
}

/// Whether no test has said anything of the pod.
fn is_new(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    status.conditions.is_none() && status.container_statuses.is_none()
}

/// Says of pods that they run and are ready, those alone of which `which` is true. None where there are no pods.
async fn run(objects: &Objects, selector: &str, container: &str, which: impl Fn(&Pod) -> bool) -> Option<()> {
    let pods: Api<Pod> = objects.api();
    let found = pods.list(&ListParams::default().labels(selector)).await.ok()?.items;
    let since = "2026-01-01T00:00:00Z";
    for name in found.iter().filter(|pod| which(pod)).filter_map(|pod| pod.metadata.name.as_deref()) {
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
            "containerStatuses": [{
                "name": container, "ready": true, "restartCount": 0, "image": "i", "imageID": "i", "started": true,
                "state": {"running": {"startedAt": since}},
            }],
        }});
        // It may have gone meanwhile.
        let played = pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
        assert!(played.is_ok() || pods.get_opt(name).await.is_ok_and(|pod| pod.is_none()), "{played:?}");
    }
    (!found.is_empty()).then_some(())
}
