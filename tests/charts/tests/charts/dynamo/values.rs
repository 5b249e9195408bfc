//! What each value does, which have no effect and are said to have none, and what is refused.

use std::collections::BTreeSet;

use portcullis_charts::values::{Case, argument_of, at, case, every_value_has_a_case, every_value_is_described, put};
use portcullis_charts::{DYNAMO, Helm, chart};
use serde_json::{Value, json};

use super::RELEASE;

const DEPLOYMENT: &str = "Deployment platform-dynamo-operator";
const VALIDATING: &str = "ValidatingWebhookConfiguration platform-dynamo-operator-validating";
const MAKES: &str = "Job platform-dynamo-operator-webhook-cert-gen-1";
const KIND: &str = "CustomResourceDefinition dynamomodels.nvidia.com";
const POD: &str = "/spec/template/spec";
const CONTAINER: &str = "/spec/template/spec/containers/0";
/// A certificate, as far as the chart looks at it.
const PEM: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// Values that are accepted because Dynamo's chart has them, each with another than the default, and with what the notes say.
fn without_effect() -> Vec<(&'static str, Value, &'static str)> {
    let (jobs, year) = ("the Jobs run the operator's own image", "a certificate is valid for a year");
    let (leases, leader) = ("all operators of a cluster keep to the same", "the Lease is named after the operator");
    vec![
        ("webhook.certGenerator.image.repository", json!("r.example/kubectl"), jobs),
        ("webhook.certGenerator.image.tag", json!("1.30"), jobs),
        ("webhook.certGenerator.image.pullPolicy", json!("Always"), jobs),
        ("webhook.certManager.certificate.duration", json!("24h"), year),
        ("webhook.certManager.certificate.renewBefore", json!("1h"), year),
        ("webhook.certManager.certificate.rootCA.duration", json!("24h"), year),
        ("webhook.certManager.certificate.rootCA.renewBefore", json!("1h"), year),
        ("namespaceRestriction.lease.duration", json!("1m"), leases),
        ("namespaceRestriction.lease.renewInterval", json!("1s"), leases),
        ("controllerManager.leaderElection.id", json!("dynamo.nvidia.com"), leader),
        ("controllerManager.leaderElection.namespace", json!("kube-system"), leader),
    ]
}

fn in_pod(path: &'static str, value: Value) -> Case {
    case(path, value.clone(), DEPLOYMENT, &format!("{POD}/{path}"), value)
}

fn argument(path: &'static str, value: Value, expected: &str) -> Case {
    argument_of(DEPLOYMENT, path, value, expected)
}

/// The values of the guide.
fn of_the_guide() -> Vec<Case> {
    let hook = |member: &str| format!("/webhooks/0/{member}");
    let labels = json!({ "team": "a" });
    let expression = json!([{ "key": "team", "operator": "In", "values": ["a"] }]);
    let (issuer, certificate) = ("/spec/issuerRef", "Certificate webhook-server-cert");
    let cert_manager = json!({ "webhook": { "certManager": { "enabled": true, "issuerRef": { "name": "corp" } } } });
    let restricted = json!({ "namespaceRestriction": { "enabled": true } });
    vec![
        case("webhook.enabled", json!(false), VALIDATING, "", Value::Null),
        argument("webhook.certificateSecret.name", json!("mine"), "--certificate-secret=mine"),
        argument("webhook.certificateSecret.external", json!(true), "--certificates=external")
            .with("webhook.caBundle", json!(PEM)),
        argument_of(MAKES, "webhook.certificateValidity", json!(90), "--certificate-validity=90d"),
        case("webhook.rotation", json!("operator"), MAKES, "", Value::Null),
        // What is PEM in base64 is bytes to the API server.
        case("webhook.caBundle", json!(PEM), VALIDATING, &hook("clientConfig/caBundle"), json!(PEM))
            .with("webhook.certificateSecret.external", json!(true)),
        case("webhook.failurePolicy", json!("Ignore"), VALIDATING, &hook("failurePolicy"), json!("Ignore")),
        case("webhook.timeoutSeconds", json!(3), VALIDATING, &hook("timeoutSeconds"), json!(3)),
        case(
            "webhook.namespaceSelector.matchLabels",
            labels.clone(),
            VALIDATING,
            &hook("namespaceSelector/matchLabels"),
            labels.clone(),
        ),
        case(
            "webhook.namespaceSelector.matchExpressions",
            expression.clone(),
            VALIDATING,
            &hook("namespaceSelector/matchExpressions"),
            expression.clone(),
        ),
        case(
            "webhook.objectSelector.matchLabels",
            labels.clone(),
            VALIDATING,
            &hook("objectSelector/matchLabels"),
            labels,
        ),
        case(
            "webhook.objectSelector.matchExpressions",
            expression.clone(),
            VALIDATING,
            &hook("objectSelector/matchExpressions"),
            expression,
        ),
        case("webhook.certManager.enabled", json!(true), certificate, &format!("{issuer}/kind"), json!("Issuer")),
        case(
            "webhook.certManager.issuerRef.name",
            json!("corp"),
            certificate,
            &format!("{issuer}/name"),
            json!("corp"),
        )
        .beside(json!({ "webhook": { "certManager": { "enabled": true } } })),
        case(
            "webhook.certManager.issuerRef.kind",
            json!("ClusterIssuer"),
            certificate,
            &format!("{issuer}/kind"),
            json!("ClusterIssuer"),
        )
        .beside(cert_manager),
        argument("namespaceRestriction.enabled", json!(true), "--restrict-to-namespace=platform-system"),
        argument("namespaceRestriction.targetNamespace", json!("team"), "--restrict-to-namespace=team")
            .beside(restricted.clone()),
        argument("namespaceRestriction.namespace", json!("team"), "--restrict-to-namespace=team").beside(restricted),
        case("controllerManager.replicas", json!(3), DEPLOYMENT, "/spec/replicas", json!(3)),
        argument("kubernetesClusterDomain", json!("corp.example"), "--cluster-domain=corp.example"),
    ]
}

/// Values that charts/portcullis has as well, and a few that only this one has.
fn others() -> Vec<Case> {
    let (digest, other) = (format!("sha256:{}", "0a".repeat(32)), json!({ "team": "a" }));
    let image = format!("{CONTAINER}/image");
    let volumes = json!([{ "name": "scratch", "emptyDir": {} }]);
    let mounts = json!([{ "name": "scratch", "mountPath": "/tmp" }]);
    let (monitor, on) =
        ("ServiceMonitor platform-dynamo-operator-metrics", json!({ "serviceMonitor": { "enabled": true } }));
    vec![
        case("crds.enabled", json!(false), KIND, "", Value::Null),
        case("crds.keep", json!(false), KIND, "/metadata/annotations/helm.sh~1resource-policy", Value::Null),
        argument("operatorAccount.name", json!("planner"), "--operator-account=planner"),
        argument("operatorAccount.namespace", json!("graphs"), "--operator-account-namespace=graphs")
            .beside(json!({ "operatorAccount": { "name": "planner" } })),
        case("image.repository", json!("r.example/op"), DEPLOYMENT, &image, json!("r.example/op:0.1.0")),
        case("image.tag", json!("9"), MAKES, &image, json!("localhost/portcullis/dynamo-webhooks:9")),
        case(
            "image.digest",
            json!(digest),
            DEPLOYMENT,
            &image,
            json!(format!("localhost/portcullis/dynamo-webhooks@{digest}")),
        ),
        case("image.pullPolicy", json!("Always"), DEPLOYMENT, &format!("{CONTAINER}/imagePullPolicy"), json!("Always")),
        in_pod("imagePullSecrets", json!([{ "name": "registry" }])),
        case(
            "resources",
            json!({ "limits": { "cpu": "2" } }),
            DEPLOYMENT,
            &format!("{CONTAINER}/resources/limits/cpu"),
            json!("2"),
        ),
        case(
            "podDisruptionBudget.enabled",
            json!(false),
            "PodDisruptionBudget platform-dynamo-operator",
            "",
            Value::Null,
        ),
        case("networkPolicy.enabled", json!(false), "NetworkPolicy platform-dynamo-operator", "", Value::Null),
        case(
            "serviceMonitor.enabled",
            json!(true),
            monitor,
            "/spec/endpoints",
            json!([{ "port": "metrics", "path": "/metrics" }]),
        ),
        case("serviceMonitor.interval", json!("30s"), monitor, "/spec/endpoints/0/interval", json!("30s"))
            .beside(on.clone()),
        case("serviceMonitor.labels", other.clone(), monitor, "/metadata/labels/team", json!("a")).beside(on),
        case("nodeSelector", other.clone(), DEPLOYMENT, &format!("{POD}/nodeSelector/team"), json!("a")),
        in_pod("tolerations", json!([{ "key": "dedicated", "operator": "Exists" }])),
        in_pod("affinity", json!({ "nodeAffinity": {} })),
        in_pod(
            "topologySpreadConstraints",
            json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }]),
        ),
        in_pod("hostNetwork", json!(true)),
        case(
            "podSecurityContext",
            json!({ "fsGroup": 2000 }),
            DEPLOYMENT,
            &format!("{POD}/securityContext/fsGroup"),
            json!(2000),
        ),
        case(
            "securityContext",
            json!({ "runAsNonRoot": true }),
            MAKES,
            &format!("{CONTAINER}/securityContext/runAsNonRoot"),
            json!(true),
        ),
        // A number to YAML, unless it is quoted.
        in_pod("priorityClassName", json!("1000")),
        case("podAnnotations", other.clone(), DEPLOYMENT, "/spec/template/metadata/annotations/team", json!("a")),
        case("podLabels", other.clone(), DEPLOYMENT, "/spec/template/metadata/labels/team", json!("a")),
        case("commonLabels", other.clone(), KIND, "/metadata/labels/team", json!("a")),
        case("commonAnnotations", other, MAKES, "/metadata/annotations/team", json!("a")),
        argument("extraArgs", json!(["--log-format=json"]), "--log-format=json"),
        case(
            "extraEnv",
            json!([{ "name": "RUST_LOG", "value": "debug" }]),
            MAKES,
            &format!("{CONTAINER}/env/0/value"),
            json!("debug"),
        ),
        case("extraVolumes", volumes.clone(), DEPLOYMENT, &format!("{POD}/volumes"), volumes),
        case("extraVolumeMounts", mounts.clone(), DEPLOYMENT, &format!("{CONTAINER}/volumeMounts"), mounts),
    ]
}

#[test]
fn every_value_does_what_its_case_says_and_every_value_has_a_case() {
    let cases = [of_the_guide(), others()].concat();
    let elsewhere: Vec<_> = without_effect().into_iter().map(|(path, ..)| path).collect();
    every_value_has_a_case(DYNAMO, RELEASE, &cases, &elsewhere);
}

#[test]
fn each_value_is_described_alike_where_it_is_set_and_where_it_is_checked() {
    every_value_is_described(DYNAMO);
}

#[test]
fn values_without_effect_change_nothing_and_the_notes_say_so() {
    let (helm, chart) = (Helm::new(), chart(DYNAMO));
    let defaults = helm.template(&chart, RELEASE, &json!({})).unwrap();
    let notes = helm.notes(&chart, RELEASE, &json!({}));
    assert!(!notes.contains("have no effect"), "{notes}");
    for (path, value, said) in without_effect() {
        let mut values = json!({});
        put(&mut values, path, &value);
        assert_eq!(helm.template(&chart, RELEASE, &values).unwrap(), defaults, "{path}");
        let notes = helm.notes(&chart, RELEASE, &values);
        assert!(notes.contains("These values have no effect:") && notes.contains(said), "{path}: {notes}");
    }
}

#[test]
fn the_notes_name_values_that_say_nothing_without_another() {
    let notes = |values: Value| Helm::new().notes(&chart(DYNAMO), RELEASE, &values);
    for (values, said) in [
        (json!({ "webhook": { "rotation": "operator", "certificateValidity": 365 } }), "webhook.certificateValidity"),
        (json!({ "namespaceRestriction": { "targetNamespace": "team" } }), "namespaceRestriction.targetNamespace"),
        (json!({ "namespaceRestriction": { "namespace": "team" } }), "namespaceRestriction.targetNamespace"),
    ] {
        let notes = notes(values);
        assert!(notes.contains("These values have no effect:") && notes.contains(said), "{said}: {notes}");
    }
    let notes = notes(json!({ "webhook": { "certificateValidity": 365 } }));
    assert!(!notes.contains("have no effect"), "hooks make certificates of that validity: {notes}");
}

#[test]
fn a_restricted_release_selects_its_namespace_has_no_kinds_and_the_notes_say_that_another_selector_is_ignored() {
    let values = json!({
        "namespaceRestriction": { "enabled": true, "targetNamespace": "team", "namespace": "team" },
        "webhook": { "namespaceSelector": { "matchLabels": { "team": "a" } } },
    });
    let objects = Helm::new().template(&chart(DYNAMO), RELEASE, &values).unwrap();
    let place = (
        "ValidatingWebhookConfiguration platform-dynamo-operator-validating-team",
        "/webhooks/0/namespaceSelector".to_owned(),
    );
    assert_eq!(at(&objects, &place), Some(&json!({ "matchLabels": { "kubernetes.io/metadata.name": "team" } })));
    assert!(objects.iter().all(|object| object["kind"] != "CustomResourceDefinition"));
    let notes = Helm::new().notes(&chart(DYNAMO), RELEASE, &values);
    for part in
        ["in namespace team alone", "webhook.namespaceSelector: a restricted release", "--restrict-to-namespace team"]
    {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

#[test]
fn the_notes_tell_how_to_look_whether_it_works() {
    for (values, parts) in [
        (
            json!({}),
            ["rollout status deployment/platform-dynamo-operator", "valid for 3650 days", "--certificates hooks"],
        ),
        (
            json!({ "webhook": { "certificateSecret": { "external": true, "name": "mine" }, "caBundle": PEM } }),
            ["Secret mine with tls.crt", "--certificate-secret mine", "--certificates external"],
        ),
        (json!({ "webhook": { "enabled": false } }), ["Webhooks are off", "condition Valid", "--webhooks off"]),
        (
            json!({ "webhook": { "rotation": "operator" } }),
            [
                "kubectl get validatingwebhookconfiguration platform-dynamo-operator-validating -o yaml",
                "dynamo-webhooks doctor --namespace platform-system --release platform-dynamo-operator",
                "--service-name platform-dynamo-operator-webhook-service",
            ],
        ),
    ] {
        let notes = Helm::new().notes(&chart(DYNAMO), RELEASE, &values);
        for part in parts {
            assert!(notes.contains(part), "{part}: {notes}");
        }
    }
}

/// Values by which the operator has each argument that follows from values.
fn telling() -> [Value; 2] {
    let selector = json!({ "matchLabels": { "team": "a" } });
    let settings = json!({
        "failurePolicy": "Ignore", "timeoutSeconds": 3, "namespaceSelector": selector, "objectSelector": selector,
    });
    let restriction = json!({ "enabled": true, "namespace": "team" });
    let (domain, webhooks_off) = ("corp.example", json!({ "enabled": false }));
    [
        json!({ "kubernetesClusterDomain": domain, "webhook": settings }),
        json!({ "kubernetesClusterDomain": domain, "namespaceRestriction": restriction, "webhook": webhooks_off }),
    ]
}

/// The arguments of 'run' that follow from these values.
fn arguments(helm: &Helm, values: &Value) -> Vec<String> {
    let objects = helm.template(&chart(DYNAMO), RELEASE, values).unwrap();
    let args = at(&objects, &(DEPLOYMENT, format!("{CONTAINER}/args"))).unwrap().as_array().unwrap();
    args.iter().skip(1).map(|arg| arg.as_str().unwrap().to_owned()).collect()
}

/// Told less, it would report what was chosen here as what is wrong.
#[test]
fn the_doctor_of_the_notes_is_told_what_the_operator_is_told() {
    let helm = Helm::new();
    for values in telling() {
        let notes = helm.notes(&chart(DYNAMO), RELEASE, &values);
        let command = notes.split_once("dynamo-webhooks doctor ").unwrap().1.replace('\'', "");
        // A flag and its value are two words there.
        let told = command.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join("=");
        for argument in arguments(&helm, &values) {
            assert!(told.contains(&argument), "{argument} is not in {command}");
        }
    }
}

#[test]
fn an_argument_that_follows_from_values_is_refused_among_the_extra_ones() {
    let helm = Helm::new();
    let account = json!({ "operatorAccount": { "name": "planner" } });
    let arguments: BTreeSet<_> = telling().iter().chain([&account]).flat_map(|it| arguments(&helm, it)).collect();
    for argument in arguments {
        let refused = helm.template(&chart(DYNAMO), RELEASE, &json!({ "extraArgs": [argument] })).err();
        assert!(refused.is_some_and(|said| said.contains("does not go here")), "{argument} is not refused");
    }
}

#[test]
fn the_notes_tell_how_to_remove_what_stays_when_the_release_is_uninstalled() {
    let secrets = "delete --ignore-not-found secret/webhook-server-cert secret/webhook-server-cert-ca";
    let roles = "platform-dynamo-operator:platform-system:webhook-cert-gen";
    for (values, said) in [
        (json!({}), [true, true]),
        (json!({ "webhook": { "rotation": "operator" } }), [true, false]),
        (json!({ "webhook": { "certManager": { "enabled": true } } }), [false, false]),
    ] {
        let notes = Helm::new().notes(&chart(DYNAMO), RELEASE, &values);
        assert_eq!([secrets, roles].map(|part| notes.contains(part)), said, "{values}: {notes}");
    }
}

#[test]
fn a_value_that_cannot_be_is_refused_by_its_name() {
    let helm = Helm::new();
    for (values, field) in [
        (json!({ "webhooks": {} }), "'webhooks'"),
        (json!({ "names": { "release": "mine" } }), "'names'"),
        (json!({ "webhook": { "certificate": {} } }), "'certificate'"),
        (json!({ "webhook": { "enabled": null } }), "missing property 'enabled'"),
        (json!({ "webhook": { "caBundle": null } }), "missing property 'caBundle'"),
        (json!({ "webhook": { "certGenerator": null } }), "missing property 'certGenerator'"),
        (json!({ "webhook": { "certManager": { "certificate": { "rootCA": null } } } }), "missing property 'rootCA'"),
        (json!({ "namespaceRestriction": { "lease": null } }), "missing property 'lease'"),
        (json!({ "controllerManager": { "leaderElection": null } }), "missing property 'leaderElection'"),
        (json!({ "webhook": { "rotation": "never" } }), "'/webhook/rotation'"),
        (json!({ "webhook": { "certificateValidity": 30 } }), "'/webhook/certificateValidity'"),
        (json!({ "webhook": { "certificateValidity": "3650d" } }), "'/webhook/certificateValidity'"),
        (json!({ "webhook": { "certificateSecret": { "name": "" } } }), "'/webhook/certificateSecret/name'"),
        (json!({ "webhook": { "caBundle": "-----BEGIN" } }), "'/webhook/caBundle'"),
        (json!({ "webhook": { "failurePolicy": "fail" } }), "'/webhook/failurePolicy'"),
        (json!({ "webhook": { "timeoutSeconds": 31 } }), "'/webhook/timeoutSeconds'"),
        (
            json!({ "webhook": { "certManager": { "issuerRef": { "kind": "CA" } } } }),
            "'/webhook/certManager/issuerRef/kind'",
        ),
        (json!({ "namespaceRestriction": { "targetNamespace": "a,b" } }), "'/namespaceRestriction/targetNamespace'"),
        (json!({ "namespaceRestriction": { "lease": { "duration": 30 } } }), "'/namespaceRestriction/lease/duration'"),
        (json!({ "controllerManager": { "replicas": 0 } }), "'/controllerManager/replicas'"),
        (json!({ "image": { "repository": "r.example/op:1" } }), "'/image/repository'"),
    ] {
        let said = helm.template(&chart(DYNAMO), RELEASE, &values).unwrap_err();
        assert!(said.contains("values don't meet the specifications of the schema"), "{values}: {said}");
        assert!(said.contains(field), "{values}: {said}");
    }
}

#[test]
fn contradictions_and_names_that_are_too_long_are_refused_with_what_to_do() {
    let external = json!({ "external": true });
    let cert_manager = json!({ "enabled": true });
    for (release, values, advice) in [
        ("1st", json!({}), "begin with a letter"),
        ("a.b", json!({}), "have no dots"),
        ("a-name-with-twenty-five-le", json!({}), "at most 24 characters"),
        ("a-validating", json!({}), "without '-validating'"),
        (
            "op",
            json!({ "webhook": { "certificateSecret": external, "certManager": cert_manager, "caBundle": PEM } }),
            "webhook.certManager.enabled and webhook.certificateSecret.external: two would fill one Secret",
        ),
        (
            "op",
            json!({ "webhook": { "rotation": "operator", "certManager": cert_manager } }),
            "webhook.rotation: operator",
        ),
        (
            "op",
            json!({ "webhook": { "rotation": "operator", "certificateSecret": external, "caBundle": PEM } }),
            "webhook.rotation: operator",
        ),
        ("op", json!({ "webhook": { "certificateSecret": external } }), "set webhook.caBundle to the authority"),
        ("op", json!({ "webhook": { "caBundle": PEM } }), "set webhook.certificateSecret.external to true"),
        (
            "op",
            json!({ "webhook": { "certificateSecret": external, "caBundle": "MA==" } }),
            "webhook.caBundle: give certificates as PEM in base64",
        ),
        (
            "op",
            json!({ "namespaceRestriction": { "enabled": true, "targetNamespace": "a", "namespace": "b" } }),
            "namespaceRestriction.targetNamespace (a) and namespaceRestriction.namespace (b) differ",
        ),
        ("op", json!({ "extraArgs": ["--webhooks=off"] }), "--webhooks does not go here; set webhook.enabled"),
        ("op", json!({ "extraArgs": ["--bind=0.0.0.0:443"] }), "the manifests of this chart have it fixed"),
        ("op", json!({ "extraEnv": [{ "name": "POD_NAME", "value": "a" }] }), "extraEnv: POD_NAME does not go here"),
    ] {
        let said = Helm::new().template(&chart(DYNAMO), [release, RELEASE[1]], &values).unwrap_err();
        assert!(said.contains(advice), "{release} {values}: {said}");
    }
}

#[test]
fn objects_are_named_as_the_guide_or_the_chart_of_dynamo_names_them() {
    for (release, name) in [
        ("platform", "platform-dynamo-operator"),
        ("dynamo-operator", "dynamo-operator"),
        ("my-dynamo-operator-2", "my-dynamo-operator-2"),
    ] {
        let objects = Helm::new().template(&chart(DYNAMO), [release, "here"], &json!({})).unwrap();
        for object in [
            format!("Deployment {name}"),
            format!("ServiceAccount {name}"),
            format!("Service {name}-webhook-service"),
            format!("ValidatingWebhookConfiguration {name}-validating"),
            format!("Job {name}-webhook-cert-gen-1"),
        ] {
            let found = at(&objects, &(object.as_str(), "/metadata/labels/app.kubernetes.io~1name".to_owned()));
            assert_eq!(found, Some(&json!("dynamo-operator")), "{object}");
        }
    }
}
