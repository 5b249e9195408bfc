//! The hooks of Dynamo's chart: what they are, in which order, and with which rights.

use std::collections::BTreeMap;

use portcullis_charts::{DYNAMO, Helm, chart};
use serde_json::{Value, json};

use super::process::arguments;
use super::values::object;
use super::{DYNAMO_NAME as NAME, DYNAMO_RELEASE as RELEASE, modes};

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][format!("helm.sh/{name}")].as_str()
}

fn rendered(values: &Value) -> Vec<Value> {
    Helm::new().template(&chart(DYNAMO), RELEASE, values).unwrap()
}

/// They are there before the Job that needs them, and stay until the next run. `hooks.yaml` lists them.
#[test]
fn a_hook_may_do_what_its_command_does_and_nothing_else() {
    let objects = rendered(&json!({ "namespaceRestriction": { "enabled": true, "targetNamespace": "team" } }));
    let hooks = objects.iter().filter_map(|object| {
        let (events, weight) = (annotation(object, "hook")?, annotation(object, "hook-weight")?);
        assert_eq!(annotation(object, "hook-delete-policy"), Some("before-hook-creation"));
        let words = format!("{} {}", object["kind"], object["metadata"]["name"]).replace('"', "");
        Some((words, (events.to_owned(), weight.to_owned(), object["rules"].clone())))
    });
    let expected: BTreeMap<String, (String, String, Value)> =
        serde_saphyr::from_str(include_str!("hooks.yaml")).unwrap();
    assert_eq!(hooks.collect::<BTreeMap<_, _>>(), expected);
}

/// A Job that goes on when Helm has given up would publish its CA over that of the next upgrade. Its name ends in the
/// revision, and Helm deletes only what has the same name, so it goes by itself, after a day in which its log can be
/// read.
#[test]
fn hook_jobs_run_as_the_operator_and_are_no_endpoints() {
    let objects = rendered(&json!({
        "image": { "repository": "r.example/op", "tag": "9" },
        "webhook": { "certificateValidity": 90, "certificateSecret": { "name": "mine" } },
        "kubernetesClusterDomain": "corp.example",
        "extraEnv": [{ "name": "HTTPS_PROXY", "value": "proxy" }],
        // A sidecar that is injected never ends, and with it the Job.
        "podAnnotations": { "sidecar.istio.io/inject": "false" },
        "podLabels": { "team": "a" },
        "operatorAccount": { "name": "planner" },
    }));
    let pod = &object(&objects, &format!("Deployment {NAME}")).unwrap()["spec"]["template"]["spec"];
    for (job, command) in [
        ("webhook-cert-gen-1", &["certs", "ensure", "--certificate-validity=90d"]),
        ("webhook-ca-inject-1", &["certs", "publish", "--timeout=4m"]),
    ] {
        let job = object(&objects, &format!("Job {NAME}-{job}")).unwrap();
        let args = arguments(std::slice::from_ref(job), "Job");
        assert_eq!(args[..3], *command);
        assert!(args.contains(&format!("--namespace={}", RELEASE[1])), "{args:?}");
        // It gets the operator's arguments, except 'run'.
        for flag in &arguments(&objects, "Deployment")[1..] {
            assert!(args.contains(flag), "{flag}: {args:?}");
        }
        let (spec, template) = (&job["spec"], &job["spec"]["template"]);
        assert_eq!([&spec["ttlSecondsAfterFinished"], &spec["activeDeadlineSeconds"]], [86_400, 600]);
        for member in ["securityContext", "nodeSelector"] {
            assert_eq!(template["spec"][member], pod[member]);
        }
        for member in ["image", "resources", "securityContext"] {
            assert_eq!(template["spec"]["containers"][0][member], pod["containers"][0][member]);
        }
        assert_eq!(template["spec"]["containers"][0]["env"], json!([{ "name": "HTTPS_PROXY", "value": "proxy" }]));
        assert_eq!(template["metadata"]["annotations"], json!({ "sidecar.istio.io/inject": "false" }));
        let labels = &template["metadata"]["labels"];
        assert_eq!(labels["team"], "a");
        let service = object(&objects, &format!("Service {NAME}-webhook-service")).unwrap();
        let mut selector = service["spec"]["selector"].as_object().unwrap().iter();
        assert!(!selector.all(|(label, value)| labels[label] == *value), "{template}");
    }
}

#[test]
fn hooks_leave_the_operator_no_right_to_write_certificates() {
    for (mode, objects) in modes::all() {
        let made_by_hooks =
            ["--certificates=hooks", "--webhooks=off"].map(|flag| mode.flags.iter().any(|it| it == flag));
        let (hooks, own): (Vec<_>, Vec<_>) = objects.iter().partition(|it| annotation(it, "hook").is_some());
        assert_eq!(!hooks.is_empty(), made_by_hooks == [true, false], "{}", mode.values);
        let rules = own.iter().flat_map(|object| object["rules"].as_array().into_iter().flatten());
        for rule in rules.filter(|_| !hooks.is_empty()) {
            let resources = rule["resources"].to_string();
            let certified = resources.contains("secrets") || resources.contains("webhookconfigurations");
            let reads = rule["verbs"].as_array().unwrap().iter().all(|it| it == "get" || it == "list" || it == "watch");
            assert!(reads || !certified, "{rule}");
        }
    }
}
