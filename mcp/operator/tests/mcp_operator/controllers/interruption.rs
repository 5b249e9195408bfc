//! `kill -9` in the middle of any plan leaves a state that the next start finishes.

use k8s_openapi::api::rbac::v1::PolicyRule;
use mcp_plan::workload::ChildKind;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, Operator, children_of, minimal, user_with_less, writes},
};

/// The parts of a child that are the operator's work, and the same whenever it was made.
fn made(child: &Value) -> Value {
    let metadata = &child["metadata"];
    json!([
        metadata["labels"],
        metadata["annotations"],
        metadata["ownerReferences"],
        child["data"],
        child["rules"],
        child["spec"]["template"]
    ])
}

/// After the n-th write, for every n that there is: an operator after the other, which takes its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_after_any_write_the_next_start_finishes_and_then_rests() {
    let place = Place::new("killed").await;
    for n in 0..12_usize {
        let name = format!("s{n}");
        let since = place.cluster.audit().mark();
        let operator = place.operator();
        operator.reconciles().await;
        place.objects.create(minimal(&name)).await;
        wait_until("the n-th write", DEADLINE, || async {
            let written = writes(place.cluster, &place.user, since).await;
            let settled = place.objects.servers().get(&name).await.unwrap().status.is_some();
            (written.len() >= n || settled).then_some(())
        })
        .await;
        operator.kill().await;
    }
    let operator = place.operator();
    for n in 0..12_usize {
        let name = format!("s{n}");
        place.objects.has_children(&name, &children_of(&name)).await;
        place.objects.phase(&name, "Pending").await;
    }
    operator.idle(place.cluster).await;
    drop(operator);
}

/// Stopped exactly before each kind of child (the right to make it is withheld), then killed: an operator after the other,
/// each with rights of its own, which takes its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_each_kind_of_child_the_next_start_makes_the_same_as_an_undisturbed_one() {
    let place = Place::new("withheld").await;
    let withheld = [
        "serviceaccounts",
        "roles",
        "rolebindings",
        "configmaps",
        "services",
        "networkpolicies",
        "statefulsets",
        "deployments",
    ];
    for resource in withheld {
        let home = place.cluster.namespace("withheld-home").await;
        let user = user_with_less(place.cluster, &home, |rule| without(rule, resource)).await;
        let flags = ["--watch-namespace", place.namespace(), "--bind", "127.0.0.1:0"];
        let operator = Operator::start_with(&user, &home, &flags);
        let name = format!("no-{resource}");
        place
            .objects
            .create(json!({
                "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": {"name": name},
                "spec": {"image": "localhost/everything:1", "transport": "stdio"},
            }))
            .await;
        let server = place.objects.phase(&name, "Failed").await;
        let message = server.status.unwrap().message.unwrap();
        assert!(message.contains(resource), "{message}");
        operator.kill().await;
    }
    let _operator = place.operator();
    let reference = "no-deployments";
    for resource in withheld {
        let name = format!("no-{resource}");
        place.objects.phase(&name, "Pending").await;
        for kind in ChildKind::ALL {
            let of = |server: &str| match kind {
                ChildKind::ConfigMap => format!("{server}-runconfig"),
                ChildKind::Service => format!("mcp-{server}-proxy"),
                ChildKind::NetworkPolicy => format!("mcp-{server}"),
                ChildKind::Deployment | ChildKind::StatefulSet => server.to_owned(),
                _ => format!("{server}-proxy-runner"),
            };
            let child = place.objects.child(kind, &of(&name), "to exist", |it| !it.is_null()).await;
            let other = place.objects.child(kind, &of(reference), "to exist", |it| !it.is_null()).await;
            // Names differ and with them digests and uids; everything else is the same.
            let plain = |child: &Value, server: &str| {
                let text = made(child).to_string().replace(server, "NAME");
                let words = text.split('"').map(|word| match word.len() {
                    16 | 36 | 64 => "HASH",
                    _ => word,
                });
                words.collect::<Vec<_>>().join("\"")
            };
            assert_eq!(plain(&child, &name), plain(&other, reference), "{kind:?}");
        }
    }
}

/// The rule without the right to create `resource`: one for that resource, one for the others.
fn without(rule: PolicyRule, resource: &str) -> Vec<PolicyRule> {
    let (withheld, others): (Vec<String>, Vec<String>) =
        rule.resources.clone().unwrap_or_default().into_iter().partition(|it| it == resource);
    let mut narrowed = PolicyRule { resources: Some(withheld), ..rule.clone() };
    narrowed.verbs.retain(|verb| verb != "create");
    let rest = PolicyRule { resources: Some(others), ..rule };
    [narrowed, rest].into_iter().filter(|rule| rule.resources.iter().any(|all| !all.is_empty())).collect()
}
