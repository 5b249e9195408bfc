//! CEL rules beside a webhook, as policies on a real API server; and settings that were chosen where an operator was
//! installed. All by `examples/policy_operator.rs`, as a process that ends when it has printed its manifests: nothing
//! serves a webhook here.

use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::examples::binary;

/// The output of the binary, with its exit code.
fn output(arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(binary("policy_operator")).args(arguments).env_clear().stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn generate(what: &str, flags: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = output(&[&["generate", what], flags].concat());
    assert_eq!(code, 0, "{stderr}");
    serde_saphyr::from_multiple(&stdout).unwrap()
}

fn maps(cluster: &ControlPlane, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(cluster.admin(), namespace)
}

fn map(name: &str, entries: usize) -> ConfigMap {
    let data: Value =
        (0..entries).map(|entry| (format!("key-{entry}"), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": data })).unwrap()
}

/// Code and message of a refusal; nothing where the object would be taken.
async fn refusal(maps: &Api<ConfigMap>, map: &ConfigMap) -> Option<(u16, String)> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match maps.create(&dry, map).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some((status.code, status.message)),
        Err(error) => panic!("{error}"),
    }
}

/// Waits until the API server has taken a policy up.
async fn in_force(maps: &Api<ConfigMap>) -> (u16, String) {
    wait_until("the policy to be in force", PATIENCE, || async { refusal(maps, &map("large", 3)).await }).await
}

#[tokio::test]
async fn a_rule_holds_without_an_operator_and_without_webhooks() {
    let cluster = ControlPlane::shared().await;
    for (release, mode) in [("open", ["--failure-policy", "Ignore"]), ("off", ["--webhooks", "off"])] {
        let (team, others) = (cluster.namespace("team").await, cluster.namespace("others").await);
        let only = format!("kubernetes.io/metadata.name={team}");
        let flags = [&["--release", release, "--namespace-selector", &only][..], &mode].concat();
        let configurations = generate("webhooks", &flags);
        assert_eq!(configurations.is_empty(), release == "off");
        cluster.apply(&[configurations, generate("policies", &flags)].concat()).await;

        let (team, others) = (maps(cluster, &team), maps(cluster, &others));
        let (code, message) = in_force(&team).await;
        let policy = format!("{release}-validating.small.configmaps.core");
        assert_eq!(code, 422, "{message}");
        let said = format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: data has more than 2 entries"
        );
        assert!(message.ends_with(&said), "{message}");
        let small = team.create(&PostParams::default(), &map("small", 2)).await.unwrap();
        // An update is judged as well.
        let grown = Patch::Merge(json!({ "data": { "one": "x", "more": "y" } }));
        let error = team.patch("small", &PatchParams::default(), &grown).await.unwrap_err();
        let kube::Error::Api(status) = error else { panic!("{error}") };
        assert_eq!((status.code, &*status.reason), (422, "Invalid"));
        assert_eq!(team.get("small").await.unwrap().data, small.data);
        // The handler would refuse this name, but only the policy is installed.
        assert_eq!(refusal(&team, &map("forbidden", 0)).await, None);
        assert_eq!(refusal(&others, &map("large", 3)).await, None, "the policy selects what the webhook selects");
    }
}

// W10: whatever the object looks like.
#[tokio::test]
async fn a_rule_never_blocks_the_deletion_of_an_object() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("leaving").await;
    let maps = maps(cluster, &namespace);
    let mut large = map("old", 3);
    large.metadata.finalizers = Some(vec!["example.test/hold".to_owned()]);
    maps.create(&PostParams::default(), &large).await.unwrap();
    maps.delete("old", &DeleteParams::default()).await.unwrap();
    let flags = ["--release", "late", "--restrict-to-namespace", &namespace, "--namespace", "late-system"];
    cluster.apply(&generate("policies", &flags)).await;
    in_force(&maps).await;

    let patch = async |patch: Value| maps.patch("old", &PatchParams::default(), &Patch::Merge(patch)).await;
    let kube::Error::Api(status) = patch(json!({ "data": { "key-9": "x" } })).await.unwrap_err() else { panic!() };
    assert_eq!(status.code, 422, "an edit of it is judged like any other: {}", status.message);
    patch(json!({ "metadata": { "finalizers": null } })).await.unwrap();
    assert!(maps.get_opt("old").await.unwrap().is_none());
}

#[tokio::test]
async fn a_restricted_installations_policy_covers_its_namespace_only() {
    let cluster = ControlPlane::shared().await;
    let (team, others) = (cluster.namespace("team").await, cluster.namespace("others").await);
    let flags = ["--release", "alone", "--namespace", "alone-system", "--restrict-to-namespace", &team];
    let manifests = generate("policies", &flags);
    let name = format!("alone-validating-{team}.small.configmaps.core");
    assert!(manifests.iter().all(|one| one["metadata"]["name"] == *name), "{manifests:?}");
    cluster.apply(&manifests).await;
    in_force(&maps(cluster, &team)).await;
    assert_eq!(refusal(&maps(cluster, &others), &map("large", 3)).await, None);
}

/// The verdict of `doctor` about calls that fail.
fn verdict(kubeconfig: &Path, flags: &[&str]) -> Value {
    let fixed = ["doctor", "--output", "json", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let (_, stdout, stderr) = output(&[&fixed, flags].concat());
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let mut findings = report["findings"].as_array().unwrap().iter();
    findings.find(|found| found["id"] == "W8").unwrap()["verdict"].clone()
}

#[tokio::test]
async fn chosen_settings_reach_the_deployment_and_are_no_drift() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("chosen").await;
    let place = ["--release", "chosen", "--namespace", &namespace];
    let chosen = [
        "--failure-policy=Ignore",
        "--timeout-seconds=3",
        "--namespace-selector=team in (chosen)",
        "--object-selector=!loose",
    ];
    let with = [&place[..], &chosen].concat();
    let configuration = generate("webhooks", &with);
    let webhook = &configuration[0]["webhooks"][0];
    assert_eq!((&webhook["failurePolicy"], &webhook["timeoutSeconds"]), (&json!("Ignore"), &json!(3)));
    assert_eq!(
        webhook["objectSelector"],
        json!({ "matchExpressions": [{ "key": "loose", "operator": "DoesNotExist" }] })
    );
    cluster.apply(&configuration).await;
    let kubeconfig = cluster.kubeconfig_path();
    assert_eq!(verdict(&kubeconfig, &with), "INFO");
    assert_eq!(verdict(&kubeconfig, &place), "WARN");

    // The Deployment starts `run` with the same.
    let deployment = generate("operator", &[&with[..], &["--image", "op:1"]].concat());
    let deployment = deployment.iter().find(|one| one["kind"] == "Deployment").unwrap();
    let arguments = json!([&["run", "--release=chosen"][..], &chosen].concat());
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["args"], arguments);
}
