//! The hooks: what they are, in which order, and with which rights.

use portcullis_charts::{DYNAMO, Helm, chart};
use serde_json::{Value, json};

use super::{NAME, RELEASE, modes};

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][format!("helm.sh/{name}")].as_str()
}

fn hooks(values: &Value) -> Vec<Value> {
    let objects = Helm::new().template(&chart(DYNAMO), RELEASE, values).unwrap();
    objects.into_iter().filter(|object| annotation(object, "hook").is_some()).collect()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
}

#[test]
fn accounts_and_rights_come_before_the_job_that_needs_them_and_stay_until_the_next_run() {
    let objects = hooks(&json!({}));
    let (makes, publishes) = (format!("{NAME}-webhook-cert-gen"), format!("{NAME}-webhook-ca-inject"));
    let cluster = |hook: &str| format!("{NAME}:{}:{hook}", RELEASE[1]);
    let (before, after) = ("pre-install,pre-upgrade,pre-rollback", "post-install,post-upgrade,post-rollback");
    let mut expected = vec![
        (before, "-5", "ServiceAccount", makes.clone()),
        (before, "-5", "ClusterRole", cluster("webhook-cert-gen")),
        (before, "-5", "ClusterRoleBinding", cluster("webhook-cert-gen")),
        (before, "-5", "Role", makes.clone()),
        (before, "-5", "RoleBinding", makes.clone()),
        (before, "-4", "Job", format!("{makes}-1")),
        (after, "1", "ServiceAccount", publishes.clone()),
        (after, "1", "ClusterRole", cluster("webhook-ca-inject")),
        (after, "1", "ClusterRoleBinding", cluster("webhook-ca-inject")),
        (after, "1", "Role", publishes.clone()),
        (after, "1", "RoleBinding", publishes.clone()),
        (after, "2", "Job", format!("{publishes}-1")),
    ];
    let mut found: Vec<_> = objects
        .iter()
        .map(|object| {
            assert_eq!(annotation(object, "hook-delete-policy"), Some("before-hook-creation"));
            let word = |value: &'_ Value| value.as_str().unwrap().to_owned();
            let (kind, name) = (word(&object["kind"]), word(&object["metadata"]["name"]));
            (annotation(object, "hook").unwrap(), annotation(object, "hook-weight").unwrap(), kind, name)
        })
        .collect();
    expected.sort_by_key(|(.., kind, name)| (*kind, name.clone()));
    found.sort_by_key(|(.., kind, name)| (kind.clone(), name.clone()));
    let found: Vec<_> =
        found.iter().map(|(hook, weight, kind, name)| (*hook, *weight, kind.as_str(), name.clone())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_hook_may_do_what_its_command_does_and_nothing_else() {
    let objects = hooks(&json!({ "namespaceRestriction": { "enabled": true, "targetNamespace": "team" } }));
    let (makes, publishes) = (format!("{NAME}-webhook-cert-gen"), format!("{NAME}-webhook-ca-inject"));
    let secrets = |verbs: Value| json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": verbs });
    let with_names = |mut rule: Value, names: Value| {
        rule["resourceNames"] = names;
        rule
    };
    let both = json!(["webhook-server-cert", "webhook-server-cert-ca"]);
    let rules = &named(&objects, "Role", &makes)["rules"];
    // What is created has no name that a role could be narrowed to.
    assert_eq!(*rules, json!([secrets(json!(["create"])), with_names(secrets(json!(["get", "patch"])), both)]));
    let rules = &named(&objects, "Role", &publishes)["rules"];
    assert_eq!(*rules, json!([with_names(secrets(json!(["get"])), json!(["webhook-server-cert"]))]));
    for (hook, verbs) in [
        // The new CA is trusted beside the old one before anything is installed, and alone when it is.
        ("webhook-cert-gen", json!(["list", "patch"])),
        ("webhook-ca-inject", json!(["list", "watch", "patch"])),
    ] {
        let rules = &named(&objects, "ClusterRole", &format!("{NAME}:{}:{hook}", RELEASE[1]))["rules"];
        let configuration = |kind: &str| {
            json!({
                "apiGroups": ["admissionregistration.k8s.io"], "resources": [format!("{kind}webhookconfigurations")],
                "resourceNames": [format!("{NAME}-{kind}-team")], "verbs": verbs,
            })
        };
        assert_eq!(*rules, json!([configuration("validating"), configuration("mutating")]), "{hook}");
    }
}

#[test]
fn the_operator_has_no_right_to_write_certificates_that_hooks_make() {
    let objects = Helm::new().template(&chart(DYNAMO), RELEASE, &json!({})).unwrap();
    let own = objects.iter().filter(|object| annotation(object, "hook").is_none());
    let rules = own.flat_map(|object| object["rules"].as_array().into_iter().flatten());
    for rule in rules {
        let about = |resource: &str| rule["resources"].as_array().unwrap().contains(&json!(resource));
        let writes = rule["verbs"]
            .as_array()
            .unwrap()
            .iter()
            .any(|verb| !["get", "list", "watch"].contains(&verb.as_str().unwrap()));
        for resource in ["secrets", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
            assert!(!(about(resource) && writes), "{rule}");
        }
    }
}

#[test]
fn the_jobs_run_as_the_operator_does_and_are_no_endpoints_of_its_service() {
    let values = json!({
        "image": { "repository": "r.example/op", "tag": "9", "pullPolicy": "Always" },
        "webhook": { "certificateValidity": 90, "certificateSecret": { "name": "mine" } },
        "kubernetesClusterDomain": "corp.example",
        "imagePullSecrets": [{ "name": "registry" }],
        "tolerations": [{ "key": "dedicated", "operator": "Exists" }],
        "extraEnv": [{ "name": "HTTPS_PROXY", "value": "proxy" }],
        // A sidecar that is injected never ends, and with it the Job.
        "podAnnotations": { "sidecar.istio.io/inject": "false" },
        "podLabels": { "team": "a" },
        "operatorAccount": { "name": "planner" },
    });
    let helm = Helm::new();
    let objects = helm.template(&chart(DYNAMO), RELEASE, &values).unwrap();
    let service = named(&objects, "Service", &format!("{NAME}-webhook-service"));
    for (job, command, account) in [
        ("webhook-cert-gen-1", &["certs", "ensure", "--certificate-validity=90d"][..], "webhook-cert-gen"),
        ("webhook-ca-inject-1", &["certs", "publish", "--timeout=4m"], "webhook-ca-inject"),
    ] {
        let template = &named(&objects, "Job", &format!("{NAME}-{job}"))["spec"]["template"];
        let (pod, container) = (&template["spec"], &template["spec"]["containers"][0]);
        let args: Vec<_> = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        assert_eq!(args[..command.len()], *command);
        for flag in [
            "--namespace=platform-system",
            "--release=platform-dynamo-operator",
            "--service-name=platform-dynamo-operator-webhook-service",
            "--certificate-secret=mine",
            "--certificates=hooks",
            "--cluster-domain=corp.example",
            "--operator-account=planner",
        ] {
            assert!(args.contains(&flag), "{flag}: {args:?}");
        }
        assert_eq!(container["image"], "r.example/op:9");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["serviceAccountName"], format!("{NAME}-{account}"));
        assert_eq!(
            (&pod["imagePullSecrets"][0]["name"], &pod["tolerations"][0]["key"]),
            (&json!("registry"), &json!("dedicated"))
        );
        assert_eq!(container["env"], json!([{ "name": "HTTPS_PROXY", "value": "proxy" }]));
        let metadata = &template["metadata"];
        assert_eq!(metadata["annotations"], json!({ "sidecar.istio.io/inject": "false" }));
        assert_eq!(metadata["labels"]["team"], "a");
        let selector = service["spec"]["selector"].as_object().unwrap();
        let selected = selector.iter().all(|(label, value)| template["metadata"]["labels"][label] == *value);
        assert!(!selected, "{template}");
    }
}

/// Its name ends in the revision, so the next upgrade's Job has another one, and Helm deletes what has the same name only.
#[test]
fn a_job_goes_by_itself_after_a_day_in_which_its_log_can_be_read() {
    let mut jobs = hooks(&json!({}));
    jobs.retain(|object| object["kind"] == "Job");
    let days: Vec<_> = jobs.iter().map(|job| job["spec"]["ttlSecondsAfterFinished"].as_u64()).collect();
    assert_eq!(days, [Some(86_400); 2]);
}

/// A Job that goes on when Helm has given up would publish its CA over that of the next upgrade.
#[test]
fn a_job_does_not_go_on_for_long_when_helm_has_given_up() {
    let mut jobs = hooks(&json!({}));
    jobs.retain(|object| object["kind"] == "Job");
    let seconds: Vec<_> = jobs.iter().map(|job| job["spec"]["activeDeadlineSeconds"].as_u64()).collect();
    assert_eq!(seconds, [Some(600); 2]);
}

#[test]
fn certificates_of_others_need_no_hooks() {
    for (mode, objects) in modes::all_rendered() {
        let hooks = objects.iter().filter(|object| annotation(object, "hook").is_some()).count();
        let made_by_hooks = mode.words().contains(&"--certificates=hooks") && !mode.words().contains(&"--webhooks=off");
        assert_eq!(hooks > 0, made_by_hooks, "{}", mode.values);
    }
}
