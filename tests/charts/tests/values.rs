//! P5: what each value of the charts does, and what is said of values that cannot be.

#![allow(clippy::unwrap_used, reason = "in a test this is the failure")]

use std::collections::BTreeSet;

use portcullis_charts::{CRDS, Helm, OPERATOR, chart};
use serde_json::{Value, json};

const RELEASE: [&str; 2] = ["mcp-operator", "mcp-operator-system"];
const DEPLOYMENT: &str = "Deployment mcp-operator";
const VALIDATING: &str = "ValidatingWebhookConfiguration mcp-operator-validating";
const POD: &str = "/spec/template/spec";
const CONTAINER: &str = "/spec/template/spec/containers/0";
const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

/// What a value does: with it set, that is at this place of this object.
struct Case {
    /// Its path in the values.
    path: &'static str,
    value: Value,
    /// Other values without which it has no meaning.
    beside: Value,
    /// Kind and name of the object, and the place in it; the object as a whole when that is empty.
    place: (&'static str, String),
    /// What is there with the value; nothing when it is null.
    expected: Value,
}

fn case(path: &'static str, value: Value, object: &'static str, pointer: &str, expected: Value) -> Case {
    Case { path, value, beside: json!({}), place: (object, pointer.to_owned()), expected }
}

impl Case {
    fn beside(self, beside: Value) -> Self {
        Self { beside, ..self }
    }
}

fn in_pod(path: &'static str, value: Value) -> Case {
    case(path, value.clone(), DEPLOYMENT, &format!("{POD}/{path}"), value)
}

/// Something that may be added to the end of the operator's arguments.
fn argument(path: &'static str, value: Value, expected: &str) -> Case {
    case(path, value, DEPLOYMENT, &format!("{CONTAINER}/args"), json!(expected))
}

fn cases(crd: &'static str) -> Vec<(&'static str, Vec<Case>)> {
    let (digest, other) = (format!("sha256:{}", "0a".repeat(32)), json!({ "team": "a" }));
    let image = format!("{CONTAINER}/image");
    let hook = |member: &str| format!("/webhooks/0/{member}");
    let expression = json!([{ "key": "team", "operator": "In", "values": ["a"] }]);
    let volumes = json!([{ "name": "scratch", "emptyDir": {} }]);
    let mounts = json!([{ "name": "scratch", "mountPath": "/tmp" }]);
    let operator = vec![
        case(
            "restrictToNamespace",
            json!("team"),
            "ClusterRole mcp-operator:mcp-operator-system:mcptoolconfig",
            "",
            Value::Null,
        ),
        case("replicas", json!(3), DEPLOYMENT, "/spec/replicas", json!(3)),
        case("image.repository", json!("r.example/op"), DEPLOYMENT, &image, json!("r.example/op:0.1.0")),
        case("image.tag", json!("9"), DEPLOYMENT, &image, json!("localhost/portcullis/mcp-operator:9")),
        case(
            "image.digest",
            json!(digest),
            DEPLOYMENT,
            &image,
            json!(format!("localhost/portcullis/mcp-operator@{digest}")),
        ),
        case("image.pullPolicy", json!("Always"), DEPLOYMENT, &format!("{CONTAINER}/imagePullPolicy"), json!("Always")),
        in_pod("imagePullSecrets", json!([{ "name": "registry" }])),
        argument("runner.image.repository", json!("r.example/run"), "--runner-image=r.example/run:0.1.0"),
        argument("runner.image.tag", json!("9"), "--runner-image=localhost/portcullis/mcp-runner:9"),
        argument(
            "runner.image.digest",
            json!(digest),
            &format!("--runner-image=localhost/portcullis/mcp-runner@{digest}"),
        ),
        argument("runner.imagePullSecrets", json!(["a", "b"]), "--default-image-pull-secrets=a,b"),
        argument("runner.host", json!("127.0.0.1"), "--proxy-host=127.0.0.1"),
        argument(
            "runner.allowedEndpointCidrs",
            json!(["10.0.0.0/8", "fd00::/8"]),
            "--allow-endpoint-cidr=10.0.0.0/8,fd00::/8",
        ),
        argument("admission", json!("warn"), "--admission=warn"),
        case("webhooks.enabled", json!(false), VALIDATING, "", Value::Null),
        case("webhooks.failurePolicy", json!("Ignore"), VALIDATING, &hook("failurePolicy"), json!("Ignore")),
        case("webhooks.timeoutSeconds", json!(3), VALIDATING, &hook("timeoutSeconds"), json!(3)),
        case(
            "webhooks.namespaceSelector.matchLabels",
            other.clone(),
            VALIDATING,
            &hook("namespaceSelector/matchLabels"),
            other.clone(),
        ),
        case(
            "webhooks.namespaceSelector.matchExpressions",
            expression.clone(),
            VALIDATING,
            &hook("namespaceSelector/matchExpressions"),
            expression.clone(),
        ),
        case(
            "webhooks.objectSelector.matchLabels",
            other.clone(),
            VALIDATING,
            &hook("objectSelector/matchLabels"),
            other.clone(),
        ),
        case(
            "webhooks.objectSelector.matchExpressions",
            expression.clone(),
            VALIDATING,
            &hook("objectSelector/matchExpressions"),
            expression,
        ),
        case(
            "certificates.mode",
            json!("cert-manager"),
            "Certificate mcp-operator-webhook-tls",
            "/spec/issuerRef/kind",
            json!("Issuer"),
        ),
        // What PEM is, in base64, is bytes to the API server.
        case(
            "certificates.caBundle",
            json!(PEM),
            VALIDATING,
            &hook("clientConfig/caBundle"),
            json!("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="),
        )
        .beside(json!({ "certificates": { "mode": "external" } })),
        case(
            "certificates.issuer.name",
            json!("corp"),
            "Certificate mcp-operator-webhook-tls",
            "/spec/issuerRef/name",
            json!("corp"),
        )
        .beside(json!({ "certificates": { "mode": "cert-manager" } })),
        case(
            "certificates.issuer.kind",
            json!("ClusterIssuer"),
            "Certificate mcp-operator-webhook-tls",
            "/spec/issuerRef/kind",
            json!("ClusterIssuer"),
        )
        .beside(json!({ "certificates": { "mode": "cert-manager", "issuer": { "name": "corp" } } })),
        argument("clusterDomain", json!("corp.example"), "--cluster-domain=corp.example"),
        case("useServiceAccountCredentials", json!(false), "ServiceAccount mcp-operator-mcpserver", "", Value::Null),
        case(
            "resources",
            json!({ "limits": { "cpu": "2" } }),
            DEPLOYMENT,
            &format!("{CONTAINER}/resources"),
            json!({ "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "512Mi", "cpu": "2" } }),
        ),
        case("podDisruptionBudget.enabled", json!(false), "PodDisruptionBudget mcp-operator", "", Value::Null),
        case("networkPolicy.enabled", json!(false), "NetworkPolicy mcp-operator", "", Value::Null),
        case(
            "serviceMonitor.enabled",
            json!(true),
            "ServiceMonitor mcp-operator-metrics",
            "/spec/endpoints",
            json!([{ "port": "metrics", "path": "/metrics" }]),
        ),
        case(
            "serviceMonitor.interval",
            json!("30s"),
            "ServiceMonitor mcp-operator-metrics",
            "/spec/endpoints/0/interval",
            json!("30s"),
        )
        .beside(json!({ "serviceMonitor": { "enabled": true } })),
        case(
            "serviceMonitor.labels",
            other.clone(),
            "ServiceMonitor mcp-operator-metrics",
            "/metadata/labels/team",
            json!("a"),
        )
        .beside(json!({ "serviceMonitor": { "enabled": true } })),
        case(
            "nodeSelector",
            other.clone(),
            DEPLOYMENT,
            &format!("{POD}/nodeSelector"),
            json!({ "kubernetes.io/os": "linux", "team": "a" }),
        ),
        in_pod("tolerations", json!([{ "key": "dedicated", "operator": "Exists" }])),
        in_pod("affinity", json!({ "nodeAffinity": {} })),
        in_pod(
            "topologySpreadConstraints",
            json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }]),
        ),
        in_pod("hostNetwork", json!(true)),
        case(
            "podSecurityContext",
            json!({ "runAsUser": null, "runAsGroup": null, "fsGroup": 2000 }),
            DEPLOYMENT,
            &format!("{POD}/securityContext"),
            json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" }, "fsGroup": 2000 }),
        ),
        case(
            "securityContext",
            json!({ "runAsNonRoot": true }),
            DEPLOYMENT,
            &format!("{CONTAINER}/securityContext"),
            json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
                "runAsNonRoot": true,
            }),
        ),
        // A number to YAML, unless it is quoted.
        in_pod("priorityClassName", json!("1000")),
        case("podAnnotations", other.clone(), DEPLOYMENT, "/spec/template/metadata/annotations/team", json!("a")),
        case("podLabels", other.clone(), DEPLOYMENT, "/spec/template/metadata/labels/team", json!("a")),
        case("commonLabels", other.clone(), DEPLOYMENT, "/metadata/labels/team", json!("a")),
        case("commonAnnotations", other.clone(), VALIDATING, "/metadata/annotations/team", json!("a")),
        argument("extraArgs", json!(["--log-format=json"]), "--log-format=json"),
        case(
            "extraEnv",
            json!([{ "name": "RUST_LOG", "value": "debug" }]),
            DEPLOYMENT,
            &format!("{CONTAINER}/env/4/value"),
            json!("debug"),
        ),
        case("extraVolumes", volumes.clone(), DEPLOYMENT, &format!("{POD}/volumes"), volumes),
        case("extraVolumeMounts", mounts.clone(), DEPLOYMENT, &format!("{CONTAINER}/volumeMounts"), mounts),
    ];
    let crds = vec![
        case("keep", json!(false), crd, "/metadata/annotations", Value::Null),
        case("operator.release", json!("blue"), crd, "/metadata/labels/app.kubernetes.io~1instance", json!("blue")),
        case("commonLabels", other.clone(), crd, "/metadata/labels/team", json!("a")),
        case("commonAnnotations", other, crd, "/metadata/annotations/team", json!("a")),
    ];
    vec![(OPERATOR, operator), (CRDS, crds)]
}

/// Puts a value at a path of names with dots between them.
fn put(values: &mut Value, path: &str, value: &Value) {
    let place = path.split('.').fold(values, |values, name| &mut values[name]);
    *place = value.clone();
}

fn at<'a>(objects: &'a [Value], (object, pointer): &(&str, String)) -> Option<&'a Value> {
    let named = |candidate: &&Value| {
        format!("{} {}", candidate["kind"].as_str().unwrap(), candidate["metadata"]["name"].as_str().unwrap())
            == *object
    };
    objects.iter().find(named).and_then(|object| object.pointer(pointer))
}

fn schema(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(chart(name).join("values.schema.json")).unwrap()).unwrap()
}

/// The paths of all values that have no values of their own below them.
fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        found.insert(path.to_owned());
        return;
    };
    for (name, property) in properties {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        leaves(property, &path, found);
    }
}

#[test]
fn every_value_does_what_its_case_says_and_every_value_has_a_case() {
    let helm = Helm::new();
    for (name, cases) in cases("CustomResourceDefinition mcpservers.toolhive.stacklok.dev") {
        let mut covered = BTreeSet::from(["global".to_owned()]);
        for Case { path, value, beside, place, expected } in cases {
            let mut values = beside.clone();
            let without = helm.template(&chart(name), RELEASE, &values).unwrap();
            put(&mut values, path, &value);
            let with = helm.template(&chart(name), RELEASE, &values).unwrap_or_else(|said| panic!("{path}: {said}"));
            let (before, after) = (at(&without, &place), at(&with, &place));
            if place.1.ends_with("/args") {
                let said = |arguments: Option<&Value>| arguments.unwrap().as_array().unwrap().contains(&expected);
                assert!(!said(before) && said(after), "{path}: {after:?}");
            } else {
                assert_eq!(after.unwrap_or(&Value::Null), &expected, "{path}");
                assert_ne!(before.unwrap_or(&Value::Null), &expected, "{path} changes nothing");
            }
            covered.insert(path.to_owned());
        }
        let mut known = BTreeSet::new();
        leaves(&schema(name), "", &mut known);
        assert_eq!(known, covered, "each value of {name} in the schema has a case, and each case a value");
    }
}

#[test]
fn a_value_that_cannot_be_is_refused_by_its_name() {
    let helm = Helm::new();
    let cases: [(&str, Value, &str); 32] = [
        (OPERATOR, json!({ "replica": 3 }), "'replica'"),
        (OPERATOR, json!({ "replicas": "three" }), "'/replicas'"),
        (OPERATOR, json!({ "replicas": 0 }), "'/replicas'"),
        // Without webhooks, or with all rights in one account, because of a word that says nothing.
        (OPERATOR, json!({ "webhooks": { "enabled": null } }), "missing property 'enabled'"),
        (OPERATOR, json!({ "useServiceAccountCredentials": null }), "missing property 'useServiceAccountCredentials'"),
        (OPERATOR, json!({ "certificates": { "mode": null } }), "missing property 'mode'"),
        (OPERATOR, json!({ "image": { "repository": "" } }), "'/image/repository'"),
        (OPERATOR, json!({ "image": { "repository": "r.example:5000/op:1" } }), "'/image/repository'"),
        (OPERATOR, json!({ "image": { "repository": "r.example/op@sha256:0a" } }), "'/image/repository'"),
        (OPERATOR, json!({ "runner": { "image": { "repository": "r.example/run:1" } } }), "'/runner/image/repository'"),
        (OPERATOR, json!({ "image": { "digest": "sha256:short" } }), "'/image/digest'"),
        (OPERATOR, json!({ "image": { "pullPolicy": "Sometimes" } }), "'/image/pullPolicy'"),
        (OPERATOR, json!({ "imagePullSecrets": ["registry"] }), "'/imagePullSecrets/0'"),
        (OPERATOR, json!({ "runner": { "image": "mine:1" } }), "'/runner/image'"),
        (OPERATOR, json!({ "runner": { "allowedEndpointCidrs": ["10.0.0.1"] } }), "'/runner/allowedEndpointCidrs/0'"),
        (OPERATOR, json!({ "admission": "refuse" }), "'/admission'"),
        (OPERATOR, json!({ "priorityClassName": "High" }), "'/priorityClassName'"),
        (OPERATOR, json!({ "imagePullSecrets": [{ "name": "a b" }] }), "'/imagePullSecrets/0/name'"),
        (OPERATOR, json!({ "restrictToNamespace": "a,b" }), "'/restrictToNamespace'"),
        (OPERATOR, json!({ "webhooks": { "timeoutSeconds": 31 } }), "'/webhooks/timeoutSeconds'"),
        (OPERATOR, json!({ "webhooks": { "timeoutSeconds": -1 } }), "'/webhooks/timeoutSeconds'"),
        (OPERATOR, json!({ "webhooks": { "failurePolicy": "fail" } }), "'/webhooks/failurePolicy'"),
        (OPERATOR, json!({ "webhooks": { "namespaceSelector": { "team": "a" } } }), "'/webhooks/namespaceSelector'"),
        (OPERATOR, json!({ "certificates": { "mode": "hooks" } }), "'/certificates/mode'"),
        (OPERATOR, json!({ "certificates": { "caBundle": PEM } }), "'/certificates/caBundle'"),
        (OPERATOR, json!({ "certificates": { "mode": "external", "caBundle": "MA==" } }), "'/certificates/caBundle'"),
        (OPERATOR, json!({ "certificates": { "issuer": { "name": "corp" } } }), "'/certificates/issuer/name'"),
        (OPERATOR, json!({ "extraVolumes": [{ "emptyDir": {} }] }), "missing property 'name'"),
        (OPERATOR, json!({ "extraVolumeMounts": [{ "name": "scratch" }] }), "missing property 'mountPath'"),
        (
            OPERATOR,
            json!({ "commonLabels": { "app.kubernetes.io/name": "mine" } }),
            "'/commonLabels/app.kubernetes.io~1name'",
        ),
        (CRDS, json!({ "keep": "yes" }), "'/keep'"),
        (CRDS, json!({ "operator": { "release": "Blue" } }), "'/operator/release'"),
    ];
    for (name, values, field) in cases {
        let said = helm.template(&chart(name), RELEASE, &values).unwrap_err();
        assert!(said.contains("values don't meet the specifications of the schema"), "{values}: {said}");
        assert!(said.contains(field), "{values}: {said}");
    }
}

#[test]
fn what_a_schema_does_not_see_is_refused_with_what_to_do() {
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": "team" } });
    let both = json!({ "restrictToNamespace": "team", "webhooks": { "namespaceSelector": selector } });
    for (release, values, advice) in [
        ("1st", json!({}), "begin with a letter"),
        ("a.b", json!({}), "have no dots"),
        ("mcp-operator", both, "leave one of the two away"),
        // The configurations would call webhooks that nobody serves.
        (
            "mcp-operator",
            json!({ "extraArgs": ["--webhooks=off"] }),
            "extraArgs: --webhooks does not go here; set webhooks.enabled",
        ),
        ("mcp-operator", json!({ "extraArgs": ["--webhooks", "off"] }), "set webhooks.enabled"),
        ("mcp-operator", json!({ "extraArgs": ["--bind=0.0.0.0:443"] }), "the manifests of this chart have it fixed"),
        (
            "mcp-operator",
            json!({ "extraEnv": [{ "name": "WATCH_NAMESPACE", "value": "team" }] }),
            "by restrictToNamespace",
        ),
        (
            "mcp-operator",
            json!({ "extraEnv": [{ "name": "MALLOC_ARENA_MAX", "value": "1" }] }),
            "extraEnv: MALLOC_ARENA_MAX does not go here; the chart sets it",
        ),
    ] {
        let said = Helm::new().template(&chart(OPERATOR), [release, RELEASE[1]], &values).unwrap_err();
        assert!(said.contains(advice), "{release}: {said}");
    }
}

#[test]
fn a_label_of_the_service_monitor_goes_before_one_of_every_object() {
    let values = json!({
        "commonLabels": { "team": "a", "site": "b" },
        "serviceMonitor": { "enabled": true, "labels": { "team": "c" } },
    });
    let objects = Helm::new().template(&chart(OPERATOR), RELEASE, &values).unwrap();
    let labels = at(&objects, &("ServiceMonitor mcp-operator-metrics", "/metadata/labels".to_owned())).unwrap();
    assert_eq!((&labels["team"], &labels["site"]), (&json!("c"), &json!("b")));
}

/// The comments of values.yaml by path, each as one line.
fn comments(name: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(chart(name).join("values.yaml")).unwrap();
    let (mut found, mut parents, mut comment): (Vec<_>, Vec<(usize, String)>, Vec<&str>) = Default::default();
    for line in text.lines() {
        let (content, depth) = (line.trim(), line.len() - line.trim_start().len());
        if let Some(words) = content.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        if let Some((name, _)) = content.split_once(':').filter(|_| !comment.is_empty() || content.ends_with(':')) {
            parents.retain(|(at, _)| *at < depth);
            parents.push((depth, name.to_owned()));
            if !comment.is_empty() {
                let path = parents.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(".");
                found.push((path, comment.join(" ")));
            }
        }
        comment.clear();
    }
    found
}

#[test]
fn each_value_is_described_alike_where_it_is_set_and_where_it_is_checked() {
    for name in [OPERATOR, CRDS] {
        let schema = schema(name);
        let mut described: BTreeSet<String> = BTreeSet::new();
        for (path, comment) in comments(name) {
            let property = path.split('.').fold(&schema, |schema, name| &schema["properties"][name]);
            assert_eq!(property["description"], json!(comment), "{name}: {path}");
            described.insert(path);
        }
        let values = std::fs::read_to_string(chart(name).join("values.yaml")).unwrap();
        let values: Value = serde_saphyr::from_str(&values).unwrap();
        let mut known = BTreeSet::new();
        leaves(&schema, "", &mut known);
        known.remove("global");
        for leaf in known {
            // A selector is described as a whole.
            let path = if leaf.contains("Selector.match") { leaf.rsplit_once('.').unwrap().0 } else { &leaf };
            assert!(described.contains(path), "{name}: {path} has no comment in values.yaml");
            let value = values.pointer(&format!("/{}", path.replace('.', "/")));
            assert!(value.is_some(), "{name}: {path} has no default in values.yaml");
        }
    }
}
