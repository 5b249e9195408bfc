//! K5, P5: what the charts render is what the binary generates, in every mode.

#![allow(clippy::unwrap_used, reason = "in a test this is the failure")]

use std::process::Command;

use portcullis_charts::{CRDS, Helm, OPERATOR, chart, operator};
use serde_json::{Value, json};

const DEFAULT: [&str; 2] = ["mcp-operator", "mcp-operator-system"];

fn generate(words: &[&str]) -> String {
    let output = Command::new(operator()).arg("generate").args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Objects by kind, namespace and name, without that by which a chart differs from manifests on purpose: it says in words
/// what manifests leave to defaults, names images of its own version, leaves out what it does not generate, and gives
/// selectors as JSON.
fn comparable(objects: Vec<Value>) -> Vec<(String, Value)> {
    let mut objects: Vec<_> = objects
        .into_iter()
        .map(|mut object| {
            if let Some(container) = object.pointer_mut("/spec/template/spec/containers/0") {
                container["image"] = Value::Null;
                let said = ["--release=", "--cluster-domain=", "--runner-image="];
                let args = container["args"].as_array_mut().unwrap();
                for argument in args.iter_mut() {
                    let (selector, kubectl) = (json!({ "matchLabels": { "team": "a" } }), "team=a");
                    *argument = json!(argument.as_str().unwrap().replace(&selector.to_string(), kubectl));
                }
                args.retain(|argument| !said.iter().any(|flag| argument.as_str().unwrap().starts_with(flag)));
            }
            if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                annotations.remove("helm.sh/resource-policy");
            }
            for member in ["annotations", "labels"] {
                if object["metadata"][member].as_object().is_some_and(serde_json::Map::is_empty)
                    || object["metadata"][member].is_null()
                {
                    object["metadata"].as_object_mut().unwrap().remove(member);
                }
            }
            let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            (["/kind", "/metadata/namespace", "/metadata/name"].map(word).join(" "), object)
        })
        .collect();
    objects.sort_by(|(a, _), (b, _)| a.cmp(b));
    objects
}

fn assert_same(rendered: Vec<Value>, generated: Vec<Value>, about: &str) {
    let (rendered, generated) = (comparable(rendered), comparable(generated));
    let names = |objects: &[(String, Value)]| objects.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&rendered), names(&generated), "{about}");
    for ((name, rendered), (_, generated)) in rendered.iter().zip(&generated) {
        assert_eq!(rendered, generated, "{about}: {name}");
    }
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
    let cases: [([&str; 2], Value, &[&str]); 12] = [
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
        (DEFAULT, json!({ "useServiceAccountCredentials": false }), &["--use-service-account-credentials=false"]),
        (team, json!({ "restrictToNamespace": "team" }), &["--restrict-to-namespace=team"]),
        (other, json!({ "restrictToNamespace": "team" }), &["--restrict-to-namespace=team"]),
        (
            other,
            json!({
                "restrictToNamespace": "team", "certificates": { "mode": "cert-manager" }, "useServiceAccountCredentials": false,
            }),
            &["--restrict-to-namespace=team", "--certificates=cert-manager", "--use-service-account-credentials=false"],
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
