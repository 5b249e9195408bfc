//! A login from end to end: one MCPOIDCConfig guards an MCPServer and an MCPRemoteProxy, with tokens of real issuers.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use portcullis_e2e::apply::apply;
use portcullis_e2e::certificates;
use portcullis_e2e::challenge::{initialize, metadata};
use portcullis_e2e::client::{Called, McpClient};
use portcullis_e2e::login::AUDIENCE;
use portcullis_e2e::pod::account_token;
use portcullis_e2e::runner::{Everything, Runner};
use portcullis_e2e::stage::{Stage, settled};
use portcullis_identity::{INTROSPECTION_CLIENT, Provider, Tls};
use portcullis_testing::wait_until;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stage;

const GROUP: &str = "toolhive.stacklok.dev";

/// A namespace, and the means to act in it.
pub(crate) struct World {
    stage: &'static Stage,
    folder: TempDir,
    pub(crate) namespace: String,
    pub(crate) client: kube::Client,
    everything: Everything,
}

impl World {
    pub(crate) async fn start() -> Self {
        let (stage, folder) = (stage().await, tempfile::tempdir().unwrap());
        let namespace = stage.cluster.namespace("login").await;
        let client = stage.cluster.admin();
        let everything = Everything::start(folder.path()).await.unwrap();
        Self { stage, folder, namespace, client, everything }
    }

    pub(crate) async fn apply(&self, version: &str, kind: &str, name: &str, members: Value) {
        let mut object = members;
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({ "name": name, "namespace": self.namespace });
        if let Err(refusal) = apply(&self.client, &object).await.unwrap() {
            panic!("{kind} {name} is refused: {refusal:?}");
        }
    }

    async fn config(&self, name: &str, spec: Value) {
        self.apply(&format!("{GROUP}/v1beta1"), "MCPOIDCConfig", name, json!({ "spec": spec })).await;
    }

    pub(crate) async fn workload(&self, kind: &str, name: &str, mut spec: Value) {
        spec["transport"] = json!("streamable-http");
        self.apply(&format!("{GROUP}/v1beta1"), kind, name, json!({ "spec": spec })).await;
    }

    /// An MCPServer for the tokens of `config`.
    async fn server(&self, name: &str, config: &str) {
        let reference = json!({ "name": config, "audience": AUDIENCE, "resourceUrl": AUDIENCE });
        let spec = json!({ "image": "localhost/everything:1", "mcpPort": 3001, "oidcConfigRef": reference });
        self.workload("MCPServer", name, spec).await;
    }

    /// The runner on what the operator wrote, once it has.
    pub(crate) async fn runner(&self, name: &str, remote: bool) -> Runner {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        settled(&format!("the proxy of {name}"), async || Ok(deployments.get_opt(name).await?)).await.unwrap();
        let (namespace, folder) = (&self.namespace, self.folder.path());
        let started = if remote {
            Runner::start_remote(&self.client, namespace, name, folder).await
        } else {
            Runner::start(&self.client, namespace, name, self.everything.address, folder).await
        };
        started.unwrap_or_else(|error| panic!("{name}: {error:#}"))
    }

    /// Waits until the status of a config lists these workloads.
    async fn referrers(&self, config: &str, expected: Value) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta1", "MCPOIDCConfig"));
        let configs: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        wait_until(&format!("{config} to be referred to by {expected}"), Duration::from_mins(1), || async {
            let mut object = configs.get(config).await.unwrap();
            let found = object.data["status"]["referencingWorkloads"].take();
            (found == expected || (found.is_null() && expected == json!([]))).then_some(())
        })
        .await;
    }

    async fn delete(&self, kind: &str, plural: &str, name: &str) {
        let kind = GroupVersionKind::gvk(GROUP, "v1beta1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let objects: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        objects.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn stop(self) {
        self.everything.stop().await.unwrap();
    }
}

/// No token, one for another server, and the right one.
async fn opens_for_its_own_audience_alone(runner: &Runner, issuer: &str, foreign: &str, own: &str) {
    let challenged = initialize(&runner.url, None).await.unwrap();
    assert_eq!(challenged.status, 401, "{challenged:?}");
    assert_eq!(challenged.parameter("realm"), Some(issuer), "{challenged:?}");
    let metadata = metadata(&runner.url, &challenged).await.unwrap();
    assert_eq!(metadata["authorization_servers"], json!([issuer]), "{metadata}");
    let refused = initialize(&runner.url, Some(foreign)).await.unwrap();
    let log = runner.log();
    assert_eq!((refused.status, refused.parameter("error")), (401, Some("invalid_token")), "{refused:?}\n{log}");

    let client = McpClient::connect_as(&runner.url, own).await.unwrap_or_else(|error| {
        panic!("{error:#}\n{}", runner.log());
    });
    assert_eq!(client.greet("Ada").await.unwrap(), Called::Answered("Hi Ada".into()));
    client.close().await.unwrap();
    assert!(!runner.log().contains(own), "the log holds a token");
}

/// The provider on HTTPS, with its files in `folder`.
async fn provider(folder: &Path) -> Provider {
    let (ca, pair) = certificates::localhost().unwrap();
    let (certificate, key) = (folder.join("provider.crt"), folder.join("provider.key"));
    std::fs::write(&certificate, &pair.cert_pem).unwrap();
    std::fs::write(&key, &pair.key_pem).unwrap();
    Provider::oidc_provider_tls(Tls { certificate, key, ca_pem: ca.cert_pem().to_owned() }).await.unwrap()
}

// O1, R4
#[tokio::test(flavor = "multi_thread")]
async fn one_config_guards_a_server_and_a_remote_proxy() {
    // The client's library needs this option, even for a URL without TLS.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let world = World::start().await;
    let provider = provider(world.folder.path()).await;
    let secret = json!({ "stringData": { "secret": INTROSPECTION_CLIENT.secret } });
    world.apply("v1", "Secret", "proxy-at-provider", secret).await;
    world.apply("v1", "ConfigMap", "provider-ca", json!({ "data": { "ca.crt": provider.ca_pem() } })).await;
    let introspection = provider.discovery().await.unwrap()["introspection_endpoint"].clone();
    let inline = json!({
        "issuer": provider.issuer(), "introspectionUrl": introspection, "clientId": INTROSPECTION_CLIENT.id,
        "clientSecretRef": { "name": "proxy-at-provider", "key": "secret" },
        "caBundleRef": { "configMapRef": { "name": "provider-ca", "key": "ca.crt" } },
    });
    world.config("staff", json!({ "type": "inline", "inline": inline })).await;
    world.referrers("staff", json!([])).await;

    world.server("greeter", "staff").await;
    let remote = json!({
        "remoteUrl": format!("http://{}", world.everything.address),
        "oidcConfigRef": { "name": "staff", "audience": AUDIENCE, "resourceUrl": AUDIENCE },
    });
    world.workload("MCPRemoteProxy", "remote-greeter", remote).await;
    let both = json!([
        { "kind": "MCPRemoteProxy", "name": "remote-greeter" },
        { "kind": "MCPServer", "name": "greeter" },
    ]);
    world.referrers("staff", both).await;

    let foreign = provider.token("https://another.example/mcp").await.unwrap();
    for (name, is_remote) in [("greeter", false), ("remote-greeter", true)] {
        let runner = world.runner(name, is_remote).await;
        let own = provider.token(AUDIENCE).await.unwrap();
        opens_for_its_own_audience_alone(&runner, provider.issuer(), &foreign, &own).await;
        let opaque = provider.opaque_token(AUDIENCE).await.unwrap();
        let opened = initialize(&runner.url, Some(&opaque)).await.unwrap();
        assert_eq!(opened.status, 200, "{name}: {opened:?}\n{}", runner.log());
        assert!(!runner.document.contains(INTROSPECTION_CLIENT.secret), "the RunConfig holds the client's secret");
        runner.stop().await.unwrap();
    }

    world.delete("MCPRemoteProxy", "mcpremoteproxies", "remote-greeter").await;
    world.referrers("staff", json!([{ "kind": "MCPServer", "name": "greeter" }])).await;
    world.config("others", json!({ "type": "inline", "inline": { "issuer": "https://login.example" } })).await;
    world.server("greeter", "others").await;
    world.referrers("staff", json!([])).await;
    world.referrers("others", json!([{ "kind": "MCPServer", "name": "greeter" }])).await;
    world.stop().await;
}

// The cluster's own tokens: the proxy reads the API server's keys with the token and the authority of its pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_token_opens_a_server_of_its_cluster() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let world = World::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    settled("the cluster's authority", async || Ok(maps.get_opt("kube-root-ca.crt").await?)).await.unwrap();
    // A pod finds kubernetes.default.svc; a process beside the cluster needs the address of its keys.
    let keys = format!("{}/openid/v1/jwks", world.stage.cluster.url());
    let issuer = "https://kubernetes.default.svc";
    let account = json!({ "issuer": issuer, "jwksUrl": keys });
    world.config("cluster", json!({ "type": "kubernetesServiceAccount", "kubernetesServiceAccount": account })).await;
    world.server("greeter", "cluster").await;
    let runner = world.runner("greeter", false).await;

    world.apply("v1", "ServiceAccount", "caller", json!({})).await;
    let token = async |audience| account_token(&world.client, &world.namespace, "caller", &[audience]).await.unwrap();
    let (foreign, own) = (token("https://another.example/mcp").await, token(AUDIENCE).await);
    opens_for_its_own_audience_alone(&runner, issuer, &foreign, &own).await;
    runner.stop().await.unwrap();
    world.stop().await;
}
