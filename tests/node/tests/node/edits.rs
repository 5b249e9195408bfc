//! Edits of a server's settings under a client at fifty calls a second.

use k8s_openapi::api::apps::v1::Deployment;
use portcullis_node::greeter::{self, Route};
use portcullis_node::{Namespace, Node, Outcome, install_operator};
use serde_json::{Value, json};

/// A part of a server's spec: how it comes, changes and goes.
#[derive(Default)]
pub(crate) struct Setting {
    /// The name that namespaces and figures have of it.
    pub(crate) name: &'static str,
    /// Objects that the server refers to.
    pub(crate) beside: Vec<Value>,
    /// Members of the server's spec before the first edit.
    pub(crate) begins: Option<Value>,
    /// The name of a client that the server refuses, whatever the edit.
    pub(crate) refused: Option<&'static str>,
    /// Members of the server's spec, or an object that it refers to, one edit after the other.
    pub(crate) edits: Vec<Value>,
}

impl Setting {
    /// Makes the edits; `check` looks at a pod of each. Returns the calls that failed from the first answer on.
    pub(crate) async fn edited_under_load(
        self,
        route: &Route,
        era: &str,
        check: impl AsyncFn(&Namespace, &str, &Value),
    ) -> Vec<Outcome> {
        let Self { name, beside, begins, refused, edits } = self;
        let node = Node::running().await;
        install_operator().await;
        let namespace = node.namespace(name).await;
        namespace.apply(beside).await;
        let url = greeter::start_on(&namespace, route, begins.unwrap_or_else(|| json!({}))).await;
        let deployments = namespace.api::<Deployment>();
        let uid = deployments.get(greeter::NAME).await.unwrap().metadata.uid;
        let caller = namespace.caller(era, 50, &url, "Ada").await;
        caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
        let begun = caller.outcomes().len();
        let mut others = Vec::new();
        if let Some(name) = refused {
            let other = namespace.caller(era, 10, &url, name).await;
            other.next("a refusal", |outcome| matches!(outcome, Outcome::Refused { .. })).await;
            others.push((name, other));
        }
        for edit in edits {
            let before = namespace.pods(greeter::NAME).await;
            let is_object = edit["kind"].is_string();
            let server = || greeter::manifest(greeter::NAME, route.spec(edit.clone()));
            namespace.apply([if is_object { edit.clone() } else { server() }]).await;
            let pods = namespace.replaced(greeter::NAME, &before).await;
            // While it drains, connections to it still carry calls.
            namespace.gone(&before).await;
            caller.steady(50, "Hi Ada").await;
            check(&namespace, &pods[0], &edit).await;
            let now = deployments.get(greeter::NAME).await.unwrap().metadata.uid;
            assert_eq!(now, uid, "the Deployment was made anew by {edit}");
        }
        for (name, other) in others {
            let outcomes = other.finish().await;
            let answered = outcomes.iter().filter(|outcome| outcome.answers(&format!("Hi {name}"))).count();
            assert_eq!(answered, 0, "of {} calls of {name}", outcomes.len());
        }
        let outcomes = caller.finish().await;
        let failed: Vec<_> = outcomes[begun..].iter().filter(|outcome| !outcome.answers("Hi Ada")).cloned().collect();
        let of = outcomes.len() - begun;
        println!("{name}, {} {era}: {} of {of} calls failed", route.name, failed.len());
        failed
    }
}

/// Whether the call failed because its session was that of a pod that is gone.
pub(crate) fn lost_its_session(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Lost { text } if text.to_lowercase().contains("session not found"))
}
