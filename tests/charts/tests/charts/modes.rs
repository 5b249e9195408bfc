//! K5, P5: in every mode, the charts render what the binaries generate.

use std::sync::LazyLock;

use portcullis_charts::{CRDS, DYNAMO, Helm, OPERATOR, assert_same, binary, chart, generate, repository};
use serde_json::{Value, json};

use super::{DYNAMO_NAME, DYNAMO_RELEASE, OPERATOR_RELEASE};

/// A certificate in base64, of which the charts look at the first words only.
const PEM: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// A combination of values, and the flags by which the binary generates the same.
pub(crate) struct Mode {
    chart: &'static str,
    release: [&'static str; 2],
    pub(crate) values: Value,
    pub(crate) flags: Vec<String>,
}

impl Mode {
    fn new(chart: &'static str, release: [&'static str; 2], values: Value, namespace: &str, flags: &str) -> Self {
        let mut flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
        flags.push(format!("--namespace={}", release[1]));
        flags.extend((!namespace.is_empty()).then(|| format!("--restrict-to-namespace={namespace}")));
        let enabled = values["webhooks"].get("enabled").unwrap_or(&values["webhook"]["enabled"]);
        flags.extend((enabled == false).then(|| "--webhooks=off".to_owned()));
        Self { chart, release, values, flags }
    }

    fn rendered(&self, helm: &Helm) -> Vec<Value> {
        let rendered = helm.template(&chart(self.chart), self.release, &self.values);
        rendered.unwrap_or_else(|said| panic!("{}: {said}", self.values))
    }

    /// Panics with the first object that differs.
    fn assert_same(&self, rendered: &[Value]) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let words = [&["operator", "--image=op:1"], &flags[..]].concat();
        let program = binary(if self.chart == OPERATOR { "mcp-operator" } else { DYNAMO });
        let mut generated = parsed(&generate(&program, &words));
        // Kinds are in another chart there.
        generated.retain(|object| self.chart != OPERATOR || object["kind"] != "CustomResourceDefinition");
        assert_same(rendered, &generated, &format!("{} {flags:?}", self.chart));
    }
}

/// Every mode of the operator's chart: sources of certificates, places, and whether there are webhooks.
fn of_the_operator() -> Vec<Mode> {
    let certificates = [
        (json!({}), "--certificates=automatic"),
        (json!({ "mode": "cert-manager" }), "--certificates=cert-manager"),
        (
            json!({ "mode": "cert-manager", "issuer": { "name": "corp", "kind": "ClusterIssuer" } }),
            "--certificates=cert-manager --issuer=ClusterIssuer/corp",
        ),
        (json!({ "mode": "external" }), "--certificates=external"),
    ];
    let places = [(OPERATOR_RELEASE, ""), (["blue", "team"], "team"), (["blue", "blue-system"], "team")];
    let of = |(release, namespace): ([&'static str; 2], &str), (certificates, flags): &(Value, &str), enabled: bool| {
        let values = json!({
            "certificates": certificates, "restrictToNamespace": namespace, "webhooks": { "enabled": enabled },
        });
        Mode::new(OPERATOR, release, values, namespace, &format!("--release={} {flags}", release[0]))
    };
    let modes = places.iter().flat_map(|place| certificates.iter().map(move |it| (*place, it)));
    modes.flat_map(|(place, certificates)| [true, false].map(|enabled| of(place, certificates, enabled))).collect()
}

/// Every mode of Dynamo's chart.
fn of_dynamo() -> Vec<Mode> {
    let certificates = [
        ("hooks", json!({})),
        ("automatic", json!({ "rotation": "operator" })),
        ("cert-manager", json!({ "certManager": { "enabled": true } })),
        ("external", json!({ "certificateSecret": { "external": true }, "caBundle": PEM })),
    ];
    let of = |namespace: &str, (certificates, webhook): &(&str, Value), enabled: bool| {
        let mut webhook = webhook.clone();
        webhook["enabled"] = json!(enabled);
        if !namespace.is_empty() {
            // A restricted release selects its namespace, whatever its other values are.
            webhook["namespaceSelector"] = json!({ "matchLabels": { "team": "a" } });
        }
        let restriction = json!({ "enabled": !namespace.is_empty(), "namespace": namespace });
        let values = json!({ "webhook": webhook, "namespaceRestriction": restriction });
        let names = format!("--release={DYNAMO_NAME} --service-name={DYNAMO_NAME}-webhook-service");
        let flags = format!("{names} --certificate-secret=webhook-server-cert --certificates={certificates}");
        Mode::new(DYNAMO, DYNAMO_RELEASE, values, namespace, &flags)
    };
    let modes = ["", DYNAMO_RELEASE[1], "team"].into_iter();
    let modes = modes.flat_map(|place| certificates.iter().map(move |it| (place, it)));
    modes.flat_map(|(place, certificates)| [true, false].map(|enabled| of(place, certificates, enabled))).collect()
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

#[test]
fn each_mode_of_the_charts_is_what_is_generated_with_its_flags() {
    for (mode, objects) in all() {
        mode.assert_same(objects);
    }
}

#[test]
fn values_for_webhooks_render_as_generate_does_with_flags() {
    let (helm, selector) = (Helm::new(), json!({ "matchLabels": { "team": "a" } }));
    let settings = json!({
        "failurePolicy": "Ignore", "timeoutSeconds": 3, "namespaceSelector": selector, "objectSelector": selector,
        "port": 10250,
    });
    let flags = [
        "failure-policy=Ignore",
        "timeout-seconds=3",
        "namespace-selector=team=a",
        "object-selector=team=a",
        "bind=[::]:10250",
        "health-bind=[::]:8082",
        "cluster-domain=corp.example",
        "replicas=3",
    ];
    let addresses = json!({ "bindAddress": "::", "healthPort": 8082 });
    let [mut operator, mut dynamo] = [of_the_operator().remove(0), of_dynamo().remove(0)];
    operator.values = json!({ "webhooks": settings, "clusterDomain": "corp.example", "replicas": 3 });
    dynamo.values = json!({
        "webhook": settings, "kubernetesClusterDomain": "corp.example", "controllerManager": { "replicas": 3 },
    });
    for mode in [&mut operator, &mut dynamo] {
        mode.values.as_object_mut().unwrap().extend(addresses.as_object().unwrap().clone());
        mode.flags.extend(flags.map(|it| format!("--{it}")));
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
