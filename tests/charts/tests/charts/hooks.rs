//! The hooks of Dynamo's chart: what they are, in which order, and with which rights.

use std::collections::BTreeMap;

use portcullis_charts::{DYNAMO, Helm, chart};
use serde_json::{Value, json};

use super::process::arguments;
use super::{DYNAMO_NAME as NAME, DYNAMO_RELEASE as RELEASE, modes};

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][format!("helm.sh/{name}")].as_str()
}

fn rendered(values: &Value) -> Vec<Value> {
    Helm::new().template(&chart(DYNAMO), RELEASE, values).unwrap()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
}

#[test]
fn accounts_and_rights_come_before_the_job_that_needs_them_and_stay_until_the_next_run() {
    let mut expected = BTreeMap::new();
    for (hook, events, weights) in [
        ("webhook-cert-gen", "pre-install,pre-upgrade,pre-rollback", ["-5", "-4"]),
        ("webhook-ca-inject", "post-install,post-upgrade,post-rollback", ["1", "2"]),
    ] {
        let (name, role) = (format!("{NAME}-{hook}"), format!("{NAME}:{}:{hook}", RELEASE[1]));
        for kind in ["ServiceAccount", "Role", "RoleBinding"] {
            expected.insert(format!("{kind} {name}"), [events, weights[0]]);
        }
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            expected.insert(format!("{kind} {role}"), [events, weights[0]]);
        }
        expected.insert(format!("Job {name}-1"), [events, weights[1]]);
    }
    let objects = rendered(&json!({}));
    let hooks = objects.iter().filter_map(|object| {
        let found = [annotation(object, "hook")?, annotation(object, "hook-weight")?];
        assert_eq!(annotation(object, "hook-delete-policy"), Some("before-hook-creation"));
        Some((format!("{} {}", object["kind"], object["metadata"]["name"]).replace('"', ""), found))
    });
    assert_eq!(hooks.collect::<BTreeMap<_, _>>(), expected);
}

#[test]
fn a_hook_may_do_what_its_command_does_and_nothing_else() {
    let objects = rendered(&json!({ "namespaceRestriction": { "enabled": true, "targetNamespace": "team" } }));
    let secrets = |verbs: Value| json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": verbs });
    let of_pair = |verbs: Value, names: Value| json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": verbs });
    let both = json!(["webhook-server-cert", "webhook-server-cert-ca"]);
    for (hook, in_namespace, verbs) in [
        // What is created has no name. The new CA is trusted beside the old one before anything is installed, and alone
        // when it is.
        (
            "webhook-cert-gen",
            json!([secrets(json!(["create"])), of_pair(json!(["get", "patch"]), both)]),
            json!(["list", "patch"]),
        ),
        (
            "webhook-ca-inject",
            json!([of_pair(json!(["get"]), json!(["webhook-server-cert"]))]),
            json!(["list", "watch", "patch"]),
        ),
    ] {
        assert_eq!(named(&objects, "Role", &format!("{NAME}-{hook}"))["rules"], in_namespace);
        let configuration = |kind: &str| {
            json!({
                "apiGroups": ["admissionregistration.k8s.io"], "resources": [format!("{kind}webhookconfigurations")],
                "resourceNames": [format!("{NAME}-{kind}-team")], "verbs": verbs,
            })
        };
        let rules = &named(&objects, "ClusterRole", &format!("{NAME}:{}:{hook}", RELEASE[1]))["rules"];
        assert_eq!(*rules, json!([configuration("validating"), configuration("mutating")]), "{hook}");
    }
}

/// A Job that goes on when Helm has given up would publish its CA over that of the next upgrade. Its name ends in the
/// revision, and Helm deletes only what has the same name, so it goes by itself, after a day in which its log can be read.
#[test]
fn the_jobs_run_as_the_operator_does_end_by_themselves_and_are_no_endpoints_of_its_service() {
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
    let pod = &named(&objects, "Deployment", NAME)["spec"]["template"]["spec"];
    for (job, command) in [
        ("webhook-cert-gen-1", &["certs", "ensure", "--certificate-validity=90d"]),
        ("webhook-ca-inject-1", &["certs", "publish", "--timeout=4m"]),
    ] {
        let job = named(&objects, "Job", &format!("{NAME}-{job}"));
        let args = arguments(std::slice::from_ref(job), "Job");
        assert_eq!(args[..3], *command);
        assert!(args.contains(&format!("--namespace={}", RELEASE[1])), "{args:?}");
        // That it is told what the operator is told, 'run' aside.
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
        let service = named(&objects, "Service", &format!("{NAME}-webhook-service"));
        let mut selector = service["spec"]["selector"].as_object().unwrap().iter();
        assert!(!selector.all(|(label, value)| labels[label] == *value), "{template}");
    }
}

#[test]
fn certificates_of_others_need_no_hooks_and_those_of_hooks_no_right_of_the_operator_to_write() {
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
