//! What a kill costs: pods are deleted one after another under clients of every era, for each transport. With `--nocapture`, the tests
//! print a row of a table for each: transport, era, kill, failed calls, the longest time without an answer.

use std::time::Duration;

use jiff::Timestamp;
use portcullis_node::greeter::{self, NAME, Route, SSE, STDIO, STDIO_BEHIND_SSE, STREAMABLE};
use portcullis_node::{
    Call, Calls, Namespace, Node, OPERATOR_NAMESPACE, Outcome, POD_IMAGE, RELEASE, install_operator, kubectl_in,
    operator_pods, reached,
};
use serde_json::json;

use crate::alone;

/// Name of the webhook's Deployment and Service.
const WEBHOOK: &str = "policy";
/// Calls on their way when a pod goes began so long before, in milliseconds.
const UNDER_WAY: u64 = 1000;
/// How long clients may be without an answer: a pod's grace period, the start of the next, what a busy machine adds.
const GAP: Duration = Duration::from_mins(2);

/// What is done to a pod.
#[derive(Clone, Copy, Debug)]
enum Step {
    DeleteOperator,
    DeleteProxy,
    DeleteServer,
    DeleteWebhook,
    RestartProxy,
    RestartServer,
}

const STEPS: [Step; 6] = [
    Step::DeleteOperator,
    Step::DeleteProxy,
    Step::DeleteServer,
    Step::DeleteWebhook,
    Step::RestartProxy,
    Step::RestartServer,
];

fn now() -> u64 {
    Timestamp::now().as_millisecond().try_into().unwrap()
}

impl Step {
    /// Does it, and returns when what went has been replaced.
    async fn carry_out(self, node: &Node, namespace: &Namespace) {
        let proxy = format!("deployment/{NAME}");
        let server = format!("statefulset/{NAME}");
        let kubectl = |arguments: &[&str]| kubectl_in(&namespace.name, arguments);
        let rolled_out = || kubectl(&["rollout", "status", &server, "--timeout=2m"]);
        match self {
            Self::DeleteOperator => {
                delete(OPERATOR_NAMESPACE, &operator_pods(node).await);
                let operator = format!("deployment/{RELEASE}");
                kubectl_in(OPERATOR_NAMESPACE, &["rollout", "status", &operator, "--timeout=2m"]);
                reached().await;
            }
            Self::DeleteProxy | Self::DeleteWebhook => {
                let deployment = if matches!(self, Self::DeleteProxy) { NAME } else { WEBHOOK };
                let pods = namespace.pods(deployment).await;
                delete(&namespace.name, &pods);
                namespace.replaced(deployment, &pods).await;
            }
            Self::RestartProxy => {
                let pods = namespace.pods(NAME).await;
                kubectl(&["rollout", "restart", &proxy]);
                namespace.replaced(NAME, &pods).await;
            }
            Self::DeleteServer => {
                delete(&namespace.name, &[format!("{NAME}-0")]);
                rolled_out();
            }
            Self::RestartServer => {
                kubectl(&["rollout", "restart", &server]);
                rolled_out();
            }
        }
    }
}

/// Deletes pods, and returns when they are gone.
fn delete(namespace: &str, pods: &[String]) {
    let arguments: Vec<&str> =
        ["delete", "pod", "--timeout=2m"].into_iter().chain(pods.iter().map(String::as_str)).collect();
    kubectl_in(namespace, &arguments);
}

/// What a step cost: failed calls of all that began in its time, and the longest time without an answer.
fn cost(calls: &[Call], from: u64, to: u64) -> (usize, usize, Duration) {
    let within = |at: u64| (from..to).contains(&at);
    let begun: Vec<_> = calls.iter().filter(|call| within(call.began + UNDER_WAY)).collect();
    let failed = begun.iter().filter(|call| !matches!(call.outcome, Outcome::Answered { .. })).count();
    let answered = calls.iter().filter(|call| matches!(call.outcome, Outcome::Answered { .. }));
    let mut answers: Vec<u64> = answered.map(|call| call.began + call.milliseconds).collect();
    answers.sort_unstable();
    let gaps = answers.windows(2).filter(|pair| within(pair[1])).map(|pair| pair[1] - pair[0]);
    (failed, begun.len(), Duration::from_millis(gaps.max().unwrap_or_default()))
}

async fn kill_one_after_another(route: Route) {
    let _alone = alone().await;
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("kills").await;
    let healthy = json!({ "httpGet": { "path": "/healthz", "port": 8443, "scheme": "HTTPS" } });
    namespace.serve(WEBHOOK, POD_IMAGE, &["webhook", "-listen", ":8443"], 8443, healthy).await;
    namespace
        .apply([json!({
            "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": { "name": WEBHOOK },
            "spec": { "validating": [{
                "name": WEBHOOK, "url": format!("https://{WEBHOOK}.{}.svc.cluster.local:8443/mutate", namespace.name),
                "failurePolicy": "fail", "tlsConfig": { "insecureSkipVerify": true },
            }] },
        })])
        .await;
    let url = greeter::start_on(&namespace, &route, json!({ "webhookConfigRef": { "name": WEBHOOK } })).await;
    let mut callers = Vec::new();
    for &era in route.eras {
        let name = format!("{}-{era}", route.name);
        let calls = Calls { era, transport: route.client, rate: 10, ..Calls::of(&url, &name) };
        callers.push((era, format!("Hi {name}"), namespace.call(calls).await));
    }
    for (_, answer, caller) in &callers {
        caller.steady(20, answer).await;
    }

    let mut times = Vec::new();
    for step in STEPS {
        times.push(now());
        step.carry_out(&node, &namespace).await;
        // Nobody helps.
        for (_, answer, caller) in &callers {
            caller.steady(20, answer).await;
        }
    }
    times.push(now());

    for (era, answer, caller) in callers {
        let calls = caller.finish_calls().await;
        for (step, time) in STEPS.iter().zip(times.windows(2)) {
            let (failed, begun, gap) = cost(&calls, time[0], time[1]);
            println!("| {} | {era} | {step:?} | {failed} of {begun} | {:.1} s |", route.name, gap.as_secs_f64());
            assert!(gap < GAP, "{era}: no answer for {gap:?} after {step:?}");
        }
        let foreign = calls.iter().find(|call| matches!(&call.outcome, Outcome::Answered { text } if *text != answer));
        assert_eq!(foreign, None, "the client of '{answer}' got an answer that is not its own");
    }
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn calls_over_streamable_http_go_on_after_each_kill_without_help() {
    kill_one_after_another(STREAMABLE).await;
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_stdio_server_go_on_after_each_kill_without_help() {
    kill_one_after_another(STDIO).await;
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn calls_over_sse_go_on_after_each_kill_without_help() {
    kill_one_after_another(SSE).await;
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_stdio_server_over_sse_go_on_after_each_kill_without_help() {
    kill_one_after_another(STDIO_BEHIND_SSE).await;
}
