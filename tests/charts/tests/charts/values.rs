//! P5: what each value of the charts does, and what is said of values that cannot be.

use portcullis_charts::values::{Case, argument_of, at, case, every_value_has_a_case, every_value_is_described};
use portcullis_charts::{CRDS, Helm, OPERATOR, chart};
use serde_json::{Value, json};

const RELEASE: [&str; 2] = ["mcp-operator", "mcp-operator-system"];
const DEPLOYMENT: &str = "Deployment mcp-operator";
const VALIDATING: &str = "ValidatingWebhookConfiguration mcp-operator-validating";
const POD: &str = "/spec/template/spec";
const CONTAINER: &str = "/spec/template/spec/containers/0";
const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

fn in_pod(path: &'static str, value: Value) -> Case {
    case(path, value.clone(), DEPLOYMENT, &format!("{POD}/{path}"), value)
}

/// Something that may be added to the end of the operator's arguments.
fn argument(path: &'static str, value: Value, expected: &str) -> Case {
    argument_of(DEPLOYMENT, path, value, expected)
}

fn cases(crd: &'static str) -> Vec<(&'static str, Vec<Case>)> {
    let (digest, other) = (format!("sha256:{}", "0a".repeat(32)), json!({ "team": "a" }));
    let image = format!("{CONTAINER}/image");
    let hook = |member: &str| format!("/webhooks/0/{member}");
    let expression = json!([{ "key": "team", "operator": "In", "values": ["a"] }]);
    let volumes = json!([{ "name": "scratch", "emptyDir": {} }]);
    let mounts = json!([{ "name": "scratch", "mountPath": "/tmp" }]);
    let operator = vec![
        argument("restrictToNamespace", json!("team"), "--restrict-to-namespace=team"),
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
        argument("runner.middleware", json!(["auth", "mcp-parser"]), "--runner-middleware=auth,mcp-parser"),
        argument("runner.allowedOrigins", json!(["https://a.example"]), "--allowed-origins=https://a.example"),
        argument("runner.trustedProxies", json!(["10.0.0.0/8", "fd00::/8"]), "--trusted-proxies=10.0.0.0/8,fd00::/8"),
        argument("runner.caBundle", json!("roots/ca.crt"), "--proxy-ca-bundle=roots/ca.crt"),
        argument("admission", json!("warn"), "--admission=warn"),
        argument("restrictWorkloads", json!(true), "--restrict-workloads"),
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

#[test]
fn every_value_does_what_its_case_says_and_every_value_has_a_case() {
    for (name, cases) in cases("CustomResourceDefinition mcpservers.toolhive.stacklok.dev") {
        every_value_has_a_case(name, RELEASE, &cases, &[]);
    }
}

#[test]
fn a_value_that_cannot_be_is_refused_by_its_name() {
    let helm = Helm::new();
    let cases: [(&str, Value, &str); 31] = [
        (OPERATOR, json!({ "replica": 3 }), "'replica'"),
        (OPERATOR, json!({ "replicas": "three" }), "'/replicas'"),
        (OPERATOR, json!({ "replicas": 0 }), "'/replicas'"),
        // Without webhooks because of a word that says nothing.
        (OPERATOR, json!({ "webhooks": { "enabled": null } }), "missing property 'enabled'"),
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

#[test]
fn each_value_is_described_alike_where_it_is_set_and_where_it_is_checked() {
    for name in [OPERATOR, CRDS] {
        every_value_is_described(name);
    }
}
