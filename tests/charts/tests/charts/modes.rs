//! K5, P5: in every mode, the charts render what the binaries generate, and an API server takes it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::discovery::Scope;
use kube::{Api, ResourceExt as _, discovery};
use portcullis_charts::{CRDS, DYNAMO, Helm, OPERATOR, binary, chart, generate, repository};
use portcullis_testing::{CertManager, ControlPlane};
use serde_json::{Map, Value, json};

use super::{DYNAMO_NAME, DYNAMO_RELEASE, OPERATOR_RELEASE};

/// A certificate in base64, of which the charts look at the first words only.
const PEM: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// A combination of values, and the flags by which the binary generates the same.
pub(crate) struct Mode {
    chart: &'static str,
    binary: &'static str,
    release: [&'static str; 2],
    pub(crate) values: Value,
    pub(crate) flags: Vec<String>,
}

impl Mode {
    fn rendered(&self, helm: &Helm) -> Vec<Value> {
        let rendered = helm.template(&chart(self.chart), self.release, &self.values);
        rendered.unwrap_or_else(|said| panic!("{}: {said}", self.values))
    }

    /// Panics with the first object that differs.
    fn assert_same(&self, rendered: &[Value]) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let words = [&["operator", "--image=op:1"], &flags[..]].concat();
        let mut generated = parsed(&generate(&binary(self.binary), &words));
        // Kinds are in another chart there.
        generated.retain(|object| self.chart != OPERATOR || object["kind"] != "CustomResourceDefinition");
        assert_same(rendered, &generated, &format!("{} {flags:?}", self.chart));
    }
}

/// Every mode of the operator's chart, which has other names where it is restricted.
fn of_the_operator() -> Vec<Mode> {
    let certificates = [
        (json!({}), vec![]),
        (json!({ "mode": "cert-manager" }), vec!["--certificates=cert-manager"]),
        (
            json!({ "mode": "cert-manager", "issuer": { "name": "corp", "kind": "ClusterIssuer" } }),
            vec!["--certificates=cert-manager", "--issuer=ClusterIssuer/corp"],
        ),
        (json!({ "mode": "external" }), vec!["--certificates=external"]),
    ];
    let places = [(OPERATOR_RELEASE, ""), (["blue", "team"], "team"), (["blue", "blue-system"], "team")];
    let mut modes = Vec::new();
    for (certificates, flags) in &certificates {
        for (release, namespace) in places {
            for enabled in [true, false] {
                let names = [format!("--release={}", release[0]), format!("--namespace={}", release[1])];
                let restricted = (!namespace.is_empty()).then(|| format!("--restrict-to-namespace={namespace}"));
                let off = (!enabled).then(|| "--webhooks=off".to_owned());
                let flags = names.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
                modes.push(Mode {
                    chart: OPERATOR,
                    binary: "mcp-operator",
                    release,
                    values: json!({
                        "certificates": certificates, "restrictToNamespace": namespace, "webhooks": { "enabled": enabled },
                    }),
                    flags: flags.chain(restricted).chain(off).collect(),
                });
            }
        }
    }
    modes
}

/// Every mode of Dynamo's chart.
fn of_dynamo() -> Vec<Mode> {
    let certificates = [
        ("hooks", json!({})),
        ("automatic", json!({ "rotation": "operator" })),
        ("cert-manager", json!({ "certManager": { "enabled": true } })),
        ("external", json!({ "certificateSecret": { "external": true }, "caBundle": PEM })),
    ];
    let restrictions = [
        (None, json!({})),
        (Some(DYNAMO_RELEASE[1]), json!({ "enabled": true })),
        (Some("team"), json!({ "enabled": true, "namespace": "team" })),
    ];
    let mut modes = Vec::new();
    for (certificate, webhook) in &certificates {
        for (namespace, restriction) in &restrictions {
            for enabled in [true, false] {
                let mut webhook = webhook.clone();
                webhook["enabled"] = json!(enabled);
                let flags = [
                    format!("--release={DYNAMO_NAME}"),
                    format!("--namespace={}", DYNAMO_RELEASE[1]),
                    format!("--service-name={DYNAMO_NAME}-webhook-service"),
                    "--certificate-secret=webhook-server-cert".to_owned(),
                    format!("--certificates={certificate}"),
                ];
                let restricted = namespace.map(|namespace| format!("--restrict-to-namespace={namespace}"));
                let off = (!enabled).then(|| "--webhooks=off".to_owned());
                modes.push(Mode {
                    chart: DYNAMO,
                    binary: "dynamo-webhooks",
                    release: DYNAMO_RELEASE,
                    values: json!({ "webhook": webhook, "namespaceRestriction": restriction }),
                    flags: flags.into_iter().chain(restricted).chain(off).collect(),
                });
            }
        }
    }
    modes
}

/// Every mode of both charts with its objects, rendered once for all tests.
pub(crate) fn all() -> &'static [(Mode, Vec<Value>)] {
    static RENDERED: LazyLock<Vec<(Mode, Vec<Value>)>> = LazyLock::new(|| {
        let helm = Helm::new();
        let modes = of_the_operator().into_iter().chain(of_dynamo());
        modes.map(|mode| (mode.rendered(&helm), mode)).map(|(objects, mode)| (mode, objects)).collect()
    });
    &RENDERED
}

fn parsed(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple::<Option<Value>>(text).unwrap().into_iter().flatten().collect()
}

/// Panics with the first object that differs. Charts may differ from manifests on purpose: they say in words what
/// manifests leave to defaults, name images of their own version, give selectors as JSON, and have hooks.
fn assert_same(rendered: &[Value], generated: &[Value], about: &str) {
    let (rendered, generated) = (comparable(rendered), comparable(generated));
    let names = |objects: &[(String, Value)]| objects.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&rendered), names(&generated), "{about}");
    for ((name, rendered), (_, generated)) in rendered.iter().zip(&generated) {
        assert_eq!(rendered, generated, "{about}: {name}");
    }
}

/// Objects by kind, namespace and name, without what may differ.
fn comparable(objects: &[Value]) -> Vec<(String, Value)> {
    let named = |object: &Value| {
        let mut object = without_nothing(object);
        if let Some(container) = object.pointer_mut("/spec/template/spec/containers/0") {
            container["image"] = Value::Null;
            container["args"] = arguments(&container["args"]);
        }
        // `generate` is given the bundle of an external certificate in a file.
        for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle");
        }
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        (["/kind", "/metadata/namespace", "/metadata/name"].map(word).join(" "), object)
    };
    let of_helm = |object: &&Value| object.pointer("/metadata/annotations/helm.sh~1hook").is_none();
    let mut objects: Vec<_> = objects.iter().filter(of_helm).map(named).collect();
    objects.sort_by(|(a, _), (b, _)| a.cmp(b));
    objects
}

/// The value without nulls, empty objects and Helm's own annotations, and with whole numbers as integers.
fn without_nothing(value: &Value) -> Value {
    let means = |value: &Value| !value.is_null() && !value.as_object().is_some_and(Map::is_empty);
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(name, _)| *name != "helm.sh/resource-policy");
            let members = members.map(|(name, value)| (name.clone(), without_nothing(value)));
            members.filter(|(_, value)| means(value)).collect()
        }
        Value::Array(items) => items.iter().map(without_nothing).collect(),
        Value::Number(number) => number.to_string().trim_end_matches(".0").parse().map_or(value.clone(), Value::Number),
        other => other.clone(),
    }
}

fn arguments(arguments: &Value) -> Value {
    let (selector, kubectl) = (json!({ "matchLabels": { "team": "a" } }).to_string(), "team=a");
    let said = ["--release=", "--cluster-domain=", "--runner-image="];
    let arguments = arguments.as_array().into_iter().flatten().filter_map(Value::as_str);
    let arguments = arguments.map(|argument| argument.replace(&selector, kubectl));
    arguments.filter(|argument| !said.iter().any(|flag| argument.starts_with(flag))).collect()
}

#[test]
fn each_mode_of_the_charts_is_what_is_generated_with_its_flags() {
    for (mode, objects) in all() {
        mode.assert_same(objects);
    }
}

#[test]
fn settings_of_the_webhooks_and_of_the_cluster_are_those_that_generate_is_told_by_flags() {
    let (helm, selector) = (Helm::new(), json!({ "matchLabels": { "team": "a" } }));
    let settings = json!({
        "failurePolicy": "Ignore", "timeoutSeconds": 3, "namespaceSelector": selector, "objectSelector": selector,
    });
    let flags = ["failure-policy=Ignore", "timeout-seconds=3", "namespace-selector=team=a", "object-selector=team=a"];
    let [mut operator, mut dynamo] = [of_the_operator().remove(0), of_dynamo().remove(0)];
    operator.values = json!({ "webhooks": settings, "clusterDomain": "corp.example", "replicas": 3 });
    dynamo.values = json!({
        "webhook": settings, "kubernetesClusterDomain": "corp.example", "controllerManager": { "replicas": 3 },
    });
    for mode in [&mut operator, &mut dynamo] {
        mode.flags
            .extend(flags.iter().chain(&["cluster-domain=corp.example", "replicas=3"]).map(|it| format!("--{it}")));
        mode.assert_same(&mode.rendered(&helm));
    }
}

#[test]
fn without_values_the_charts_are_the_committed_manifests() {
    let helm = Helm::new();
    let charts = [OPERATOR, CRDS].map(|name| helm.template(&chart(name), OPERATOR_RELEASE, &json!({})).unwrap());
    let deploy = repository("deploy");
    let read = |file: &str| std::fs::read_to_string(deploy.join(file)).unwrap();
    let files = parsed(&read("kustomization.yaml")).remove(0);
    let files = files["resources"].as_array().unwrap().iter().map(|file| read(file.as_str().unwrap()));
    assert_same(&charts.concat(), &files.flat_map(|text| parsed(&text)).collect::<Vec<_>>(), "deploy/");
}

#[test]
fn the_kinds_of_the_charts_are_what_is_generated() {
    for (program, name) in [("mcp-operator", CRDS), ("dynamo-webhooks", DYNAMO)] {
        // As the Makefile's `generate`.
        let folder = chart(name).join("files").display().to_string();
        generate(&binary(program), &["crds", "--check", "--out", &folder]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_takes_what_each_mode_renders() {
    // Cert-manager brings the kinds of its mode.
    let (cluster, _) = (ControlPlane::shared().await, CertManager::shared().await);
    let namespaces = [OPERATOR_RELEASE[1], DYNAMO_RELEASE[1], "team", "blue-system"]
        .map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
    cluster.apply(&namespaces).await;
    // Most objects are the same in many modes.
    let mut taken = BTreeSet::new();
    for (mode, objects) in all() {
        for object in objects {
            if taken.insert(object.to_string()) {
                dry_run(cluster, object, &mode.values).await;
            }
        }
    }
}

/// Has an API server look at an object as if it were applied.
async fn dry_run(cluster: &ControlPlane, object: &Value, about: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let (resource, capabilities): (ApiResource, _) = discovery::pinned_kind(&cluster.admin(), &kind).await.unwrap();
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(cluster.admin(), &namespace, &resource),
        (Scope::Namespaced, None) => panic!("{} {} has no namespace", kind.kind, object.name_any()),
        (Scope::Cluster, _) => Api::all_with(cluster.admin(), &resource),
    };
    let params = PatchParams {
        dry_run: true,
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::apply("test").force()
    };
    let taken = api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
    taken.unwrap_or_else(|error| panic!("{} {} of {about}: {error}", kind.kind, object.name_any()));
}
