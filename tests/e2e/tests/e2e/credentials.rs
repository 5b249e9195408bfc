//! A credential from end to end: what the operator writes of it, and the proxy does with it at a real provider.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use portcullis_e2e::challenge::initialize;
use portcullis_identity::{EXCHANGE_CLIENT, Provider};
use serde_json::json;

use crate::login::World;

const BACKEND: &str = "http://backend.example/mcp";

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_client_secret_reaches_a_proxy_that_runs() {
    let (world, provider) = (World::start().await, Provider::zitadel().await.unwrap());
    let secret = async |value: &str| {
        world.apply("v1", "Secret", "exchanger", json!({ "stringData": { "secret": value } })).await;
    };
    secret("before-rotation").await;
    let exchange = json!({
        "tokenUrl": provider.discovery().await.unwrap()["token_endpoint"], "audience": BACKEND,
        "clientId": EXCHANGE_CLIENT.id, "clientSecretRef": { "name": "exchanger", "key": "secret" },
    });
    let spec = json!({ "type": "tokenExchange", "tokenExchange": exchange });
    world.apply("toolhive.stacklok.dev/v1beta1", "MCPExternalAuthConfig", "tokens", json!({ "spec": spec })).await;
    let reference = json!({ "name": "tokens" });
    let spec = json!({ "image": "localhost/everything:1", "mcpPort": 3001, "externalAuthConfigRef": reference });
    world.workload("MCPServer", "greeter", spec).await;
    let runner = world.runner("greeter", false).await;
    let token = provider.token("http://weather.example/mcp").await.unwrap();
    let status = async || initialize(&runner.url, Some(&token)).await.unwrap().status;
    assert_eq!(status().await, 502, "{}", runner.log());
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), &world.namespace);
    let before = deployments.get("greeter").await.unwrap();

    secret(EXCHANGE_CLIENT.secret).await;
    runner.refresh_files(&world.client, &before).await.unwrap();
    assert_eq!(status().await, 200, "{}", runner.log());
    assert_eq!(provider.exchanges().unwrap(), 1);
    assert_eq!(deployments.get("greeter").await.unwrap().spec, before.spec, "no pod starts anew");
    let log = runner.stop().await.unwrap();
    for secret in ["before-rotation", EXCHANGE_CLIENT.secret, &token] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
    world.stop().await;
}
