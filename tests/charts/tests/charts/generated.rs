//! K5, P5: what the charts render is what the binary generates, in every mode.

use portcullis_charts::{CRDS, Helm, OPERATOR, assert_same, chart, operator};
use serde_json::{Value, json};

const DEFAULT: [&str; 2] = ["mcp-operator", "mcp-operator-system"];

fn generate(words: &[&str]) -> String {
    portcullis_charts::generate(&operator(), words)
}

#[test]
fn the_committed_templates_are_what_is_generated() {
    for (what, name) in [("operator", OPERATOR), ("crds", CRDS)] {
        // As the Makefile's `generate`.
        let folder = chart(name).join("templates");
        generate(&[what, "--format", "helm", "--check", "--out", folder.to_str().unwrap()]);
    }
}

#[test]
fn without_values_the_charts_are_the_committed_manifests() {
    let helm = Helm::new();
    let charts = [OPERATOR, CRDS].map(|name| helm.template(&chart(name), DEFAULT, &json!({})).unwrap());
    let deploy = portcullis_charts::repository("deploy");
    let files = std::fs::read_to_string(deploy.join("kustomization.yaml")).unwrap();
    let files: Value = serde_saphyr::from_str(&files).unwrap();
    let files = files["resources"].as_array().unwrap().iter().map(|file| deploy.join(file.as_str().unwrap()));
    let committed =
        files.flat_map(|file| serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(file).unwrap()).unwrap());
    assert_same(charts.concat(), committed.collect(), "deploy/");
}

#[test]
fn each_mode_of_the_chart_is_what_is_generated_with_its_flags() {
    let (team, other) = (["blue", "team"], ["blue", "blue-system"]);
    let issuer = json!({ "mode": "cert-manager", "issuer": { "name": "corp", "kind": "ClusterIssuer" } });
    let cases: [([&str; 2], Value, &[&str]); 11] = [
        (other, json!({}), &[]),
        (
            other,
            json!({ "clusterDomain": "corp.example", "replicas": 3 }),
            &["--cluster-domain=corp.example", "--replicas=3"],
        ),
        (DEFAULT, json!({ "certificates": { "mode": "cert-manager" } }), &["--certificates=cert-manager"]),
        (DEFAULT, json!({ "certificates": issuer }), &["--certificates=cert-manager", "--issuer=ClusterIssuer/corp"]),
        (DEFAULT, json!({ "certificates": { "mode": "external" } }), &["--certificates=external"]),
        (DEFAULT, json!({ "webhooks": { "enabled": false } }), &["--webhooks=off"]),
        (
            DEFAULT,
            json!({ "webhooks": {
                "failurePolicy": "Ignore", "timeoutSeconds": 3,
                "namespaceSelector": { "matchLabels": { "team": "a" } }, "objectSelector": { "matchLabels": { "team": "a" } },
            } }),
            &[
                "--failure-policy=Ignore",
                "--timeout-seconds=3",
                "--namespace-selector=team=a",
                "--object-selector=team=a",
            ],
        ),
        (team, json!({ "restrictToNamespace": "team" }), &["--restrict-to-namespace=team"]),
        (other, json!({ "restrictToNamespace": "team" }), &["--restrict-to-namespace=team"]),
        (
            other,
            json!({
                "restrictToNamespace": "team", "certificates": { "mode": "cert-manager" },
            }),
            &["--restrict-to-namespace=team", "--certificates=cert-manager"],
        ),
        (
            team,
            json!({ "restrictToNamespace": "team", "webhooks": { "enabled": false } }),
            &["--restrict-to-namespace=team", "--webhooks=off"],
        ),
    ];
    let helm = Helm::new();
    for (release, values, flags) in cases {
        let rendered = helm.template(&chart(OPERATOR), release, &values).unwrap();
        let place = ["operator", "--image=op:1", "--release", release[0], "--namespace", release[1]];
        let generated: Vec<Value> = serde_saphyr::from_multiple(&generate(&[&place[..], flags].concat())).unwrap();
        // Kinds are in the other chart.
        let generated = generated.into_iter().filter(|object| object["kind"] != "CustomResourceDefinition");
        assert_same(rendered, generated.collect(), &format!("{release:?} {flags:?}"));
    }
}
