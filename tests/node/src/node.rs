//! The node that hack/node brings up.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::Namespace;

/// Where hack/node/up.sh writes it.
const KUBECONFIG: &str = "/var/lib/portcullis-node/admin.kubeconfig";
/// The Go SDK's MCP server `everything`, with the arguments of its binary.
pub const EVERYTHING_IMAGE: &str = "localhost/portcullis/everything:test";
/// The program of tests/node/pod: an MCP client and server, and webhooks.
pub const POD_IMAGE: &str = "localhost/portcullis/pod:test";
/// How long anything may take on a busy machine: pods that start, a rollout, a status.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// A running node, for its administrator.
#[derive(Clone)]
pub struct Node {
    /// The administrator's client.
    pub client: Client,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

impl Node {
    /// The node that runs on this machine.
    ///
    /// # Panics
    /// When there is none.
    pub async fn running() -> Self {
        let file = Path::new(KUBECONFIG);
        let kubeconfig = Kubeconfig::read_from(file)
            .unwrap_or_else(|error| panic!("no node: {error}. 'make e2e' brings one up and runs these tests"));
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.unwrap_or_else(|error| panic!("{KUBECONFIG}: {error}"));
        let client = Client::try_from(config).unwrap_or_else(|error| panic!("{KUBECONFIG}: {error}"));
        Self { client }
    }

    /// A namespace for one test, named `prefix-` and eight letters and digits.
    ///
    /// # Panics
    /// When the API server refuses it.
    pub async fn namespace(&self, prefix: &str) -> Namespace {
        Namespace::create(self.client.clone(), prefix).await
    }
}

/// A container of a pod under Pod Security's level `restricted`, from an image that is on the node.
pub(crate) fn container(name: &str, image: &str, arguments: &[&str]) -> Value {
    json!({
        "name": name, "image": image, "imagePullPolicy": "Never", "args": arguments,
        "securityContext": {
            "runAsNonRoot": true, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
        },
    })
}
