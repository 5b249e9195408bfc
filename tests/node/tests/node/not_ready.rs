//! Servers that cannot answer: the status says why, and that they can once they are fixed.

use std::time::Instant;

use futures::future::join_all;
use mcp_api::v1beta1::{MCPServer, Phase};
use portcullis_node::greeter::{NAME, STREAMABLE, manifest};
use portcullis_node::{Calls, DEADLINE, Namespace, Node, POD_IMAGE, install_operator, kubectl_in};
use portcullis_testing::wait_for_object;
use serde_json::{Value, json};

/// A server that cannot answer.
struct Bad {
    name: &'static str,
    /// Members of its spec.
    members: Value,
    /// Reasons that its condition may have.
    reasons: &'static [&'static str],
    /// A part of the message.
    says: &'static str,
    /// The members that fix it. Null makes the Secret that it lacks.
    mended: Value,
}

fn cases() -> Vec<Bad> {
    let pod = |spec: Value| json!({ "podTemplateSpec": { "spec": spec } });
    let limited = |memory: &str| {
        let mut members =
            pod(json!({ "containers": [{ "name": "mcp", "resources": { "limits": { "memory": memory } } }] }));
        members["args"] = json!(["serve", "-fill", "64", ":3001"]);
        members
    };
    vec![
        Bad {
            name: "no-image",
            members: json!({ "image": "localhost/portcullis/there-is-none:1" }),
            reasons: &["ErrImagePull"],
            says: "cannot pull image localhost/portcullis/there-is-none:1",
            mended: json!({ "image": POD_IMAGE }),
        },
        Bad {
            name: "crash",
            members: json!({ "args": ["serve"] }),
            reasons: &["CrashLoopBackOff"],
            says: "ends with exit code 1",
            mended: json!({ "args": ["serve", ":3001"] }),
        },
        Bad {
            name: "other-port",
            members: json!({ "mcpPort": 3999 }),
            reasons: &["NotAnswering"],
            says: "does not answer on port 3999",
            mended: json!({ "mcpPort": 3001 }),
        },
        Bad {
            name: "no-node",
            members: pod(json!({ "nodeSelector": { "portcullis.dev/there-is-none": "yes" } })),
            reasons: &["Unschedulable"],
            says: "no node can run pod",
            mended: json!({ "podTemplateSpec": null }),
        },
        Bad {
            name: "memory",
            members: limited("48Mi"),
            reasons: &["OOMKilled"],
            says: "pod greeter-0",
            mended: limited("128Mi"),
        },
        Bad {
            name: "no-secret",
            members: json!({ "secrets": [{ "name": "keys", "key": "token" }] }),
            reasons: &["CreateContainerConfigError"],
            says: "keys",
            mended: Value::Null,
        },
    ]
}

/// Waits until its status is in this phase, with these reasons and words of `BackendReady`.
async fn becomes(namespace: &Namespace, what: &str, phase: Phase, reasons: &[&str], says: &str) {
    let begun = Instant::now();
    let is = |server: &MCPServer| {
        let Some(status) = &server.status else { return false };
        let mut conditions = status.conditions.iter().flatten();
        let backend = conditions.find(|condition| condition.type_ == "BackendReady");
        let told = backend.is_some_and(|told| reasons.contains(&&*told.reason) && told.message.contains(says));
        status.phase == Some(phase) && status.observed_generation == server.metadata.generation && told
    };
    wait_for_object(&namespace.api::<MCPServer>(), NAME, what, DEADLINE, is).await;
    println!("{what} after {:.1?}", begun.elapsed());
}

impl Bad {
    async fn run(self, node: &Node) {
        let namespace = node.namespace(self.name).await;
        namespace.apply([manifest(NAME, STREAMABLE.spec(self.members))]).await;
        becomes(&namespace, &format!("{}: told", self.name), Phase::Failed, self.reasons, self.says).await;
        if self.mended.is_null() {
            kubectl_in(&namespace.name, &["create", "secret", "generic", "keys", "--from-literal=token=x"]);
        } else {
            let patch = json!({ "spec": self.mended }).to_string();
            kubectl_in(&namespace.name, &["patch", "mcpserver", NAME, "--type=merge", "--patch", &patch]);
        }
        becomes(&namespace, &format!("{}: ready", self.name), Phase::Ready, &["PodsRun"], "").await;
        let server = namespace.api::<MCPServer>().get(NAME).await.unwrap();
        let url = server.status.and_then(|status| status.url).unwrap();
        let caller = namespace.call(Calls::of(&url, "Ada")).await;
        caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
        caller.finish().await;
    }
}

// R6
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_ready_only_while_it_can_answer() {
    let node = Node::running().await;
    install_operator().await;
    // The node has two CPUs.
    let mut cases = cases();
    while !cases.is_empty() {
        let some = cases.split_off(cases.len().saturating_sub(2));
        join_all(some.into_iter().map(|bad| bad.run(&node))).await;
    }
}
