//! Measures the cost of a kill: pods are deleted one after another under clients of every era and transport at once.
//! With `--nocapture`, the test prints a row of a table for each: transport, era, kill, failed calls, the longest time
//! without an answer.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use portcullis_node::greeter::{self, NAME, ROUTES, Route};
use portcullis_node::{
    Call, Caller, Calls, Namespace, Node, OPERATOR_NAMESPACE, Outcome, POD_IMAGE, RELEASE, install_operator,
    kubectl_in, operator_pods, reached,
};
use serde_json::json;

use crate::alone;

/// Name of the webhook's Deployment and Service.
const WEBHOOK: &str = "policy";
/// Calls on their way when a pod goes began so long before, in milliseconds.
const UNDER_WAY: u64 = 1000;
/// A client's timeout for one call, within which every call has an outcome. It is longer than all waits in turn: with a
/// new session, a call is three messages, each with up to 10 s for the webhook and 26 s for a connection to the server,
/// and 60 s for a stdio server that is away.
const PATIENCE: Duration = Duration::from_mins(3);
/// The longest time without an answer: a pod's grace period, the start of the next, and what a busy machine adds.
const GAP: Duration = Duration::from_mins(2);

/// A disturbance of a pod.
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
    /// Does it to a server, and returns when what went has been replaced. All tests share the operator
    /// ([`delete_operator`]).
    async fn carry_out(self, namespace: &Namespace) {
        let proxy = format!("deployment/{NAME}");
        let server = format!("statefulset/{NAME}");
        let kubectl = |arguments: &[&str]| kubectl_in(&namespace.name, arguments);
        let rolled_out = || kubectl(&["rollout", "status", &server, "--timeout=2m"]);
        match self {
            Self::DeleteOperator => {}
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

/// Deletes the operator's pods, and returns when others answer in their place.
async fn delete_operator(node: &Node) {
    delete(OPERATOR_NAMESPACE, &operator_pods(node).await);
    let operator = format!("deployment/{RELEASE}");
    kubectl_in(OPERATOR_NAMESPACE, &["rollout", "status", &operator, "--timeout=2m"]);
    reached().await;
}

/// Deletes pods, and returns when they are gone.
fn delete(namespace: &str, pods: &[String]) {
    let arguments: Vec<&str> =
        ["delete", "pod", "--timeout=2m"].into_iter().chain(pods.iter().map(String::as_str)).collect();
    kubectl_in(namespace, &arguments);
}

/// The cost of a step: failed calls of all that began in its time, and the longest time without an answer.
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

/// A server on a route, its webhook, and a client of each era that calls it.
struct Called {
    route: Route,
    namespace: Namespace,
    callers: Vec<(&'static str, String, Caller)>,
}

impl Called {
    async fn start(node: &Node, route: Route) -> Self {
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
            let calls = Calls { era, transport: route.client, rate: 10, patience: PATIENCE, ..Calls::of(&url, &name) };
            callers.push((era, format!("Hi {name}"), namespace.call(calls).await));
        }
        Self { route, namespace, callers }
    }

    /// Returns when every client is answered again and again, without intervention.
    async fn steady(&self) {
        for (_, answer, caller) in &self.callers {
            caller.steady(20, answer).await;
        }
    }

    /// Prints what each step cost, and holds it to its bounds.
    async fn finish(self, times: &[u64]) {
        for (era, answer, caller) in self.callers {
            let calls = caller.finish_calls().await;
            for (step, time) in STEPS.iter().zip(times.windows(2)) {
                let (failed, begun, gap) = cost(&calls, time[0], time[1]);
                println!(
                    "| {} | {era} | {step:?} | {failed} of {begun} | {:.1} s |",
                    self.route.name,
                    gap.as_secs_f64()
                );
                assert!(gap < GAP, "{}, {era}: no answer for {gap:?} after {step:?}", self.route.name);
                if let Step::DeleteServer | Step::RestartServer = step {
                    let refused = |call: &&Call| {
                        let within = (time[0]..time[1]).contains(&call.began);
                        within && matches!(&call.outcome, Outcome::Lost { text } if text.contains("connection refused"))
                    };
                    let refused = calls.iter().find(refused);
                    assert_eq!(refused, None, "{era}: the proxy of a server that is away is still to be reached");
                }
                if let Step::DeleteOperator = step {
                    assert_eq!(failed, 0, "{era}: the operator is not between client and server");
                }
            }
            let patience = u64::try_from(PATIENCE.as_millis()).unwrap();
            let silent = calls.iter().find(|call| call.milliseconds >= patience);
            let route = self.route.name;
            assert_eq!(
                silent, None,
                "{route}, {era}: a call got neither an answer nor an error. Steps began at {times:?}"
            );
            let foreign = |call: &&Call| matches!(&call.outcome, Outcome::Answered { text } if *text != answer);
            let foreign = calls.iter().find(foreign);
            assert_eq!(foreign, None, "the client of '{answer}' got an answer that is not its own");
        }
    }
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn calls_over_every_transport_go_on_after_each_kill() {
    let _alone = alone().await;
    let node = Node::running().await;
    install_operator().await;
    let called: Vec<Called> = join_all(ROUTES.map(|route| Called::start(&node, route))).await;
    let called: Vec<Arc<Called>> = called.into_iter().map(Arc::new).collect();
    join_all(called.iter().map(|called| called.steady())).await;
    let mut times = Vec::new();
    for step in STEPS {
        times.push(now());
        if let Step::DeleteOperator = step {
            delete_operator(&node).await;
        } else {
            let steps = called.iter().cloned();
            // kubectl blocks.
            let steps = steps.map(|called| tokio::spawn(async move { step.carry_out(&called.namespace).await }));
            for step in join_all(steps).await {
                step.unwrap();
            }
        }
        join_all(called.iter().map(|called| called.steady())).await;
    }
    times.push(now());
    for called in called {
        Arc::into_inner(called).unwrap().finish(&times).await;
    }
}
