//! `CLUSTER=node make demo`: the request gate with real pods, on the node that hack/node brings up.

use anyhow::{Result, ensure};
use portcullis_node::{Caller, Namespace, Node, Outcome, POD_IMAGE, greeter, install_operator, kubectl};
use serde_json::{Value, json};

use crate::say::{chapter, shown, step};

/// Shows the part that needs pods and Services: the way of a call through them.
pub(crate) async fn on_node() -> Result<()> {
    chapter("The operator, from its images and charts");
    let node = Node::running().await;
    step("helm upgrade --install portcullis-crds charts/portcullis-crds, and mcp-operator charts/portcullis");
    install_operator().await;
    shown(&kubectl(&["--namespace", "mcp-operator-system", "get", "pods"]));

    chapter("An MCP server behind its proxy, and a client in another pod");
    let namespace = node.namespace("demo").await;
    step("running a request webhook in a pod (HTTPS): it calls bob by his full name");
    let healthy = json!({ "httpGet": { "path": "/healthz", "port": 8443, "scheme": "HTTPS" } });
    namespace.serve("policy", POD_IMAGE, &["webhook", "-listen", ":8443"], 8443, healthy).await;
    step(
        "applying an MCPWebhookConfig that names it, an MCPOIDCConfig for the tokens of this cluster, and an MCPServer with both",
    );
    namespace.apply([webhooks(&namespace, true), login()]).await;
    let members = json!({
        "webhookConfigRef": { "name": "policy" }, "oidcConfigRef": { "name": "cluster", "audience": "greeter" },
    });
    let url = greeter::start(&namespace, members).await;
    shown(&kubectl(&["--namespace", &namespace.name, "get", "mcpservers,pods"]));
    step(&format!("a pod without a token calls the tool `greet` at {url}:"));
    let stranger = namespace.caller("stateless", 5, &url, "bob").await;
    let refused = stranger.next("HTTP 401", |outcome| matches!(outcome, Outcome::Lost { .. })).await;
    tell(&refused);
    stranger.finish().await;
    step("a pod with a token of its ServiceAccount does, 50 times a second:");
    let caller = namespace.caller_as("stateless", 50, &url, "bob", Some("greeter")).await;
    tell(&caller.next("an answer", |outcome| outcome.answers("Hi Robert")).await);

    chapter("An edit of the MCPWebhookConfig replaces the proxy's pod, and no call is lost");
    let begun = caller.outcomes().len();
    let before = namespace.pods(greeter::NAME).await;
    step("taking the mutating webhook out of MCPWebhookConfig policy");
    namespace.apply([webhooks(&namespace, false)]).await;
    let after = namespace.replaced(greeter::NAME, &before).await;
    step(&format!("pod {} was replaced by {}", before.join(", "), after.join(", ")));
    tell(&caller.next("an answer without the webhook", |outcome| outcome.answers("Hi bob")).await);
    count(caller, begun).await
}

fn webhooks(namespace: &Namespace, mutating: bool) -> Value {
    let webhook = json!({
        "name": "policy", "url": format!("https://policy.{}.svc.cluster.local:8443/mutate", namespace.name),
        "failurePolicy": "fail", "tlsConfig": { "insecureSkipVerify": true },
    });
    let list = if mutating { "mutating" } else { "validating" };
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": { "name": "policy" },
        "spec": { list: [webhook] },
    })
}

fn login() -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPOIDCConfig", "metadata": { "name": "cluster" },
        "spec": {
            "type": "kubernetesServiceAccount",
            "kubernetesServiceAccount": { "issuer": "https://kubernetes.default.svc.cluster.local" },
        },
    })
}

fn tell(outcome: &Outcome) {
    shown(&match outcome {
        Outcome::Answered { text } => format!("the tool answers '{text}'"),
        Outcome::Refused { code, text } => format!("denied: JSON-RPC error {code}, '{text}'"),
        Outcome::Lost { text } => format!("refused: {text}"),
    });
}

async fn count(caller: Caller, begun: usize) -> Result<()> {
    let outcomes = caller.finish().await;
    let since = outcomes.get(begun..).unwrap_or_default();
    let answered = since.iter().filter(|outcome| matches!(outcome, Outcome::Answered { .. })).count();
    step(&format!("{answered} of {} calls were answered from before the edit to after it", since.len()));
    ensure!(answered == since.len(), "calls were lost");
    Ok(())
}
