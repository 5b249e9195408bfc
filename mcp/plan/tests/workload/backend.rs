//! The verdict on an MCP server by its pods.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use mcp_plan::workload::backend::{Backend, Outlook, Unready, judge};
use serde_json::{Value, json};

const NOW: &str = "2026-11-27T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// The time so many seconds ago.
fn ago(seconds: i64) -> Value {
    json!((now() - jiff::SignedDuration::from_secs(seconds)).to_string())
}

/// A pod of the StatefulSet `web` with these members in its status.
fn pod(name: &str, status: Value) -> Pod {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s", "controller": true});
    let metadata = json!({"name": name, "namespace": "team", "ownerReferences": [owner]});
    serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
}

fn container(members: Value) -> Value {
    let mut all = json!({"name": "mcp", "ready": false, "image": "web:1", "imageID": "", "restartCount": 0});
    all.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    all
}

/// A pod with one container.
fn with(members: Value) -> Pod {
    pod("web-0", json!({"phase": "Running", "containerStatuses": [container(members)]}))
}

fn waiting(reason: &str) -> Pod {
    with(json!({"state": {"waiting": {"reason": reason, "message": "changes"}}}))
}

/// A container that runs for the time `since` after it ended so many times, the last time with this code after it `ran` for so long.
fn again(restarts: i32, code: i32, ran: i64, since: i64) -> Pod {
    let end = json!({
        "exitCode": code, "reason": "Error", "startedAt": ago(5000 + ran), "finishedAt": ago(5000),
    });
    with(json!({
        "ready": true, "restartCount": restarts,
        "state": {"running": {"startedAt": ago(since)}}, "lastState": {"terminated": end},
    }))
}

fn verdict(pods: &[Pod]) -> Backend {
    judge("team", "web", &pods.iter().collect::<Vec<_>>(), None, now())
}

#[test]
fn a_server_that_cannot_run_is_told_with_its_pod_and_the_next_command() {
    let describe = "kubectl describe pod -n team web-0";
    let log = "kubectl logs -n team web-0 -c mcp --previous";
    let ended = |reason: &str| {
        let end = json!({"exitCode": 137, "reason": reason, "startedAt": ago(9), "finishedAt": ago(5)});
        with(
            json!({"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": end}}),
        )
    };
    let unschedulable =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]);
    let missing = json!({"reason": "CreateContainerConfigError", "message": "secret \"keys\" not found"});
    let first = json!({"phase": "Pending", "initContainerStatuses": [
        container(json!({"name": "setup", "state": {"waiting": {"reason": "ErrImagePull"}}})),
    ]});
    for (pod, reason, what, next) in vec![
        (waiting("ErrImagePull"), "ErrImagePull", "container mcp of pod web-0 cannot pull image web:1", describe),
        (waiting("ImagePullBackOff"), "ErrImagePull", "container mcp of pod web-0 cannot pull image web:1", describe),
        (pod("web-0", first), "ErrImagePull", "container setup of pod web-0 cannot pull image web:1", describe),
        (
            waiting("InvalidImageName"),
            "InvalidImageName",
            "container mcp of pod web-0 cannot use image web:1",
            describe,
        ),
        (
            with(json!({"state": {"waiting": missing}})),
            "CreateContainerConfigError",
            "container mcp of pod web-0 cannot be made: secret \"keys\" not found",
            describe,
        ),
        (
            waiting("CreateContainerError"),
            "CreateContainerError",
            "container mcp of pod web-0 cannot be made",
            describe,
        ),
        (waiting("RunContainerError"), "StartError", "container mcp of pod web-0 cannot be started", describe),
        (ended("StartError"), "StartError", "container mcp of pod web-0 cannot be started", describe),
        (ended("Error"), "CrashLoopBackOff", "container mcp of pod web-0 ends with exit code 137", log),
        (ended("OOMKilled"), "OOMKilled", "container mcp of pod web-0 was killed at the limit of its memory", describe),
        (pod("web-0", json!({"conditions": unschedulable})), "Unschedulable", "no node can run pod web-0", describe),
        (pod("web-0", json!({"phase": "Failed", "reason": "Evicted"})), "Evicted", "pod web-0 has failed", describe),
    ] {
        let message = format!("{what} ({reason}): {next}");
        let expected = Backend { outlook: Outlook::Fails, reason: reason.to_owned(), message, again: None };
        assert_eq!(verdict(&[pod]), expected);
    }
    // A condition takes one word.
    let odd = verdict(&[waiting("Not a word")]);
    assert_eq!((odd.outlook, &*odd.reason), (Outlook::Fails, "PodFailed"));
}

#[test]
fn a_server_that_starts_or_runs_does_not_fail() {
    let running = || with(json!({"ready": true, "state": {"running": {"startedAt": ago(1)}}}));
    let mut ending = running();
    ending.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let mut foreign = running();
    foreign.metadata.owner_references.as_mut().unwrap()[0].name = "other".to_owned();
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    let first_end = json!({"exitCode": 1, "startedAt": ago(2), "finishedAt": ago(1)});
    let set_up = json!({"phase": "Running", "containerStatuses": [
        container(json!({"ready": true, "state": {"running": {}}})),
    ], "initContainerStatuses": [container(json!({"name": "setup", "state": {"terminated": {"exitCode": 0}}}))]});
    for (pods, outlook, reason) in vec![
        (vec![], Outlook::Starts, "Starting"),
        (vec![ending], Outlook::Starts, "Starting"),
        (vec![foreign], Outlook::Starts, "Starting"),
        (vec![pod("web-0", json!({}))], Outlook::Starts, "Starting"),
        (vec![pod("web-0", json!({"conditions": gated}))], Outlook::Starts, "Starting"),
        (vec![waiting("ContainerCreating")], Outlook::Starts, "Starting"),
        (vec![with(json!({"state": {"running": {"startedAt": ago(1)}}}))], Outlook::Starts, "Starting"),
        (vec![with(json!({"state": {"terminated": first_end}}))], Outlook::Starts, "Starting"),
        (vec![running()], Outlook::Runs, "PodsRun"),
        (vec![pod("web-0", set_up)], Outlook::Runs, "PodsRun"),
    ] {
        let found = verdict(&pods);
        assert_eq!((found.outlook, &*found.reason, found.again), (outlook, reason, None), "{pods:?}");
        if outlook == Outlook::Starts {
            let next = "kubectl describe statefulset,pod -n team -l toolhive-basename=web";
            assert_eq!(found.message, format!("the MCP server has not answered yet: {next}"));
        }
    }
}

#[test]
fn one_pod_that_runs_is_enough_and_the_others_are_told_of() {
    let status =
        json!({"phase": "Running", "containerStatuses": [container(json!({"ready": true, "state": {"running": {}}}))]});
    let pods = [pod("web-1", status), waiting("ErrImagePull")];
    let found = verdict(&pods);
    assert_eq!(found.outlook, Outlook::Runs);
    assert_eq!(
        found.message,
        "pod runs: web-1; container mcp of pod web-0 cannot pull image web:1 (ErrImagePull): kubectl describe pod -n team web-0"
    );
}

#[test]
fn a_container_that_ended_has_to_outlive_its_last_failure() {
    // Restarts, exit code, how long it ran before, how long it runs; how much longer it has to.
    for (restarts, code, ran, runs, rest) in [
        (1, 1, 1, 0, 8),
        (1, 1, 300, 7, 1),
        (1, 1, 300, 8, 0),
        (2, 1, 1, 7, 1),
        (2, 1, 60, 60, 60),
        (9, 1, 400, 400, 200),
        (9, 1, 600, 0, 0),
        (9, 137, 30, 59, 1),
        // A stdio server ends with its input.
        (1, 0, 1, 0, 0),
        (9, 0, 30, 0, 0),
        (9, 0, 29, 57, 1),
    ] {
        let found = verdict(&[again(restarts, code, ran, runs)]);
        let expected =
            if rest == 0 { (Outlook::Runs, None) } else { (Outlook::Fails, Some(Duration::from_secs(rest))) };
        assert_eq!((found.outlook, found.again), expected, "{restarts} {code} {ran} {runs}");
    }
}

#[test]
fn a_crash_loop_is_told_in_one_way_however_often_its_pod_changes() {
    let end = json!({"exitCode": 1, "reason": "Error", "startedAt": ago(4), "finishedAt": ago(2)});
    let states = [
        json!({"restartCount": 4, "state": {"terminated": end}}),
        json!({"restartCount": 5, "ready": true, "state": {"running": {"startedAt": ago(1)}}, "lastState": {"terminated": end}}),
        json!({"restartCount": 5, "state": {"terminated": end}, "lastState": {"terminated": end}}),
        json!({"restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": end}}),
    ];
    let told: Vec<_> = states.map(|state| Backend { again: None, ..verdict(&[with(state)]) }).into();
    assert!(told.iter().all(|other| *other == told[0] && other.outlook == Outlook::Fails), "{told:#?}");
}

#[test]
fn a_server_that_answers_no_proxy_is_told_with_its_port() {
    let server = with(json!({"ready": true, "state": {"running": {"startedAt": ago(60)}}}));
    let proxy = |ready: bool, started: bool, since: i64| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "proxy"}, "status": {"containerStatuses": [{
            "name": "toolhive", "ready": ready, "started": started, "image": "", "imageID": "", "restartCount": 0,
            "state": {"running": {"startedAt": ago(since)}},
        }]}}))
        .unwrap()
    };
    for (proxies, reason, rest) in [
        (vec![], "PodsRun", None),
        (vec![proxy(false, false, 60)], "Starting", None),
        (vec![proxy(false, true, 6)], "Starting", Some(1)),
        (vec![proxy(false, true, 7)], "NotAnswering", None),
        (vec![proxy(false, true, 1), proxy(false, true, 60)], "NotAnswering", None),
    ] {
        let pods: Vec<&Pod> = proxies.iter().collect();
        let judged_with = |server: &Pod, redis: bool| {
            let unready = Unready { pods: &pods, start: !pods.is_empty(), port: Some(3999), redis };
            judge("team", "web", &[server], Some(unready), now())
        };
        let judged = |server: &Pod| judged_with(server, false);
        let found = judged(&server);
        assert_eq!((&*found.reason, found.again), (reason, rest.map(Duration::from_secs)), "{proxies:?}");
        if reason == "NotAnswering" {
            assert_eq!(found.message, "the MCP server does not answer on port 3999: kubectl logs -n team web-0");
            assert_eq!(found.outlook, Outlook::Fails);
            let either = "no proxy is ready: the MCP server does not answer on port 3999, or Redis does not answer the proxy: \
                          kubectl logs -n team deployment/web";
            assert_eq!(judged_with(&server, true).message, either);
        }
        assert_eq!(judged(&waiting("ErrImagePull")).reason, "ErrImagePull", "the cause is told, not what comes of it");
    }
}
