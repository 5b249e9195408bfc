//! The MCP operator, installed as its users install it.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use portcullis_testing::{apply_manifests, wait_for_object};
use serde_json::{Value, json};

use crate::Node;
use crate::node::DEADLINE;

/// The namespace that `deploy/` installs it in.
const OPERATOR_NAMESPACE: &str = "mcp-operator-system";

/// Applies `deploy/`, with the images that are on the node instead of those that it names, and returns when the operator serves.
///
/// # Panics
/// When it does not come to that.
pub async fn install_operator(node: &Node) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy"));
    let read = |file: &str| {
        let path = folder.join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let documents = |file: &str| -> Vec<Value> {
        serde_saphyr::from_multiple(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OPERATOR_NAMESPACE } })];
    for file in documents("kustomization.yaml")[0]["resources"].as_array().into_iter().flatten() {
        objects.extend(documents(file.as_str().unwrap_or_default()));
    }
    for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let container = &mut object["spec"]["template"]["spec"]["containers"][0];
        let version = env!("CARGO_PKG_VERSION");
        container["image"] = json!(format!("localhost/portcullis/mcp-operator:{version}"));
        let runner =
            json!({ "name": "TOOLHIVE_RUNNER_IMAGE", "value": format!("localhost/portcullis/mcp-runner:{version}") });
        container["env"].as_array_mut().unwrap_or_else(|| panic!("the operator has no environment")).push(runner);
    }
    apply_manifests(&node.client, &objects).await;
    let deployments: Api<Deployment> = Api::namespaced(node.client.clone(), OPERATOR_NAMESPACE);
    wait_for_object(&deployments, "mcp-operator", "the operator to serve", DEADLINE, |deployment| {
        deployment.status.as_ref().is_some_and(|status| {
            status.observed_generation == deployment.metadata.generation
                && status.available_replicas == deployment.spec.as_ref().and_then(|spec| spec.replicas)
        })
    })
    .await;
}
