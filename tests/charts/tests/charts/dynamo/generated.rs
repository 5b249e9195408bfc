//! The chart renders what the binary generates, and an API server takes it.

use std::collections::BTreeSet;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::discovery::Scope;
use kube::{Api, ResourceExt as _, discovery};
use portcullis_charts::{DYNAMO, Helm, assert_same, binary, chart, generate};
use portcullis_testing::{CertManager, ControlPlane};
use serde_json::{Value, json};

use super::{RELEASE, modes};

fn generated(words: &[&str]) -> Vec<Value> {
    let text = generate(&binary("dynamo-webhooks"), words);
    let objects: Vec<Option<Value>> = serde_saphyr::from_multiple(&text).unwrap();
    objects.into_iter().flatten().collect()
}

/// Whether Helm runs it by itself, and `generate` does not print it.
fn is_hook(object: &Value) -> bool {
    object.pointer("/metadata/annotations/helm.sh~1hook").is_some()
}

#[test]
fn the_committed_templates_are_what_is_generated() {
    let folder = chart(DYNAMO).join("templates").display().to_string();
    for what in ["operator", "crds"] {
        // As the Makefile's `generate`.
        generate(&binary("dynamo-webhooks"), &[what, "--format", "helm", "--check", "--out", &folder]);
    }
}

#[test]
fn each_mode_of_the_chart_is_what_is_generated_with_its_flags() {
    for (mode, objects) in modes::all_rendered() {
        let rendered = objects.iter().filter(|object| !is_hook(object)).cloned().map(without_bundles);
        let words = [&["operator", "--image=op:1"], &mode.words()[..]].concat();
        assert_same(rendered.collect(), generated(&words), &format!("{words:?}"));
    }
}

/// Without the bundles of an external certificate, which `generate` is given in a file.
fn without_bundles(mut object: Value) -> Value {
    for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle");
    }
    object
}

#[test]
fn settings_of_the_webhooks_are_those_that_generate_is_told_by_flags() {
    let (helm, selector) = (Helm::new(), json!({ "matchLabels": { "team": "a" } }));
    let flags =
        ["--failure-policy=Ignore", "--timeout-seconds=3", "--namespace-selector=team=a", "--object-selector=team=a"];
    let mut mode = modes::all().remove(0);
    mode.values = json!({ "webhook": {
        "failurePolicy": "Ignore", "timeoutSeconds": 3, "namespaceSelector": selector, "objectSelector": selector,
    } });
    let rendered = mode.rendered(&helm).into_iter().filter(|object| !is_hook(object));
    let words = [&["operator", "--image=op:1"], &mode.words()[..], &flags].concat();
    assert_same(rendered.collect(), generated(&words), &format!("{words:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_takes_what_each_mode_renders() {
    // Cert-manager brings the kinds of its mode.
    let (cluster, _) = (ControlPlane::shared().await, CertManager::shared().await);
    let namespaces = [RELEASE[1], "team"]
        .map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
    cluster.apply(&namespaces).await;
    // Most objects are the same in many modes.
    let mut taken = BTreeSet::new();
    for (mode, objects) in modes::all_rendered() {
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
