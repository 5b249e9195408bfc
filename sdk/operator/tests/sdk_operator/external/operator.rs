//! `run --certificates external`, as a process with the rights of `generate rbac`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use super::fixture::{DAY, ca, leaf};
use crate::PATIENCE;
use crate::operator_cli::process::{Running, output};

async fn generate(arguments: &[&str]) -> Vec<Value> {
    let output = output(&[&["generate"], arguments].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

// D5, from the first start without a Secret to a renewed one: nothing
// restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_waits_for_its_secret_and_outlives_damage() {
    let cluster = ControlPlane::shared().await;
    let name = cluster.namespace("op").await;
    let crds = generate(&["crds"]).await.into_iter().map(|crd| serde_json::from_value(crd).unwrap());
    cluster.install_crds(&crds.collect::<Vec<_>>()).await;
    let place = ["--namespace", &name, "--release", &name, "--certificates", "external"];
    let manifests = generate(&[&["rbac"], &place[..]].concat()).await;
    let user = cluster.user_from_manifests(&manifests).await;
    let kubeconfig = user.kubeconfig.display().to_string();
    let running = Running::start(&[&place[..], &["--kubeconfig", &kubeconfig]].concat());

    let waiting = format!(
        "waiting for certificates: Secret {name}/{name}-webhook-tls cannot be served: there is none; make it: 'kubectl -n \
         {name} create secret generic {name}-webhook-tls --type=kubernetes.io/tls --from-file=tls.crt --from-file=tls.key \
         --from-file=ca.crt'\n"
    );
    let says = || async { (running.health("/readyz").await == (503, waiting.clone())).then_some(()) };
    wait_until("the reason why it is not ready", PATIENCE, says).await;

    let owner = ca("owner");
    let pair = leaf(&owner, &format!("{name}-webhook.{name}.svc"), -DAY, DAY * 90);
    let secrets: Api<Secret> = Api::namespaced(cluster.admin(), &name);
    let fill = async |data: &[(&str, &str)]| {
        let data: BTreeMap<_, _> = data.iter().map(|(k, text)| (*k, ByteString(text.as_bytes().to_vec()))).collect();
        let secret_name = format!("{name}-webhook-tls");
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret_name }, "data": data });
        secrets.patch(&secret_name, &PatchParams::apply("owner").force(), &Patch::Apply(secret)).await.unwrap();
    };
    fill(&[("tls.crt", &pair.cert_pem), ("tls.key", &pair.key_pem), ("ca.crt", owner.cert_pem())]).await;
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("ca.crt");
    std::fs::write(&bundle, owner.cert_pem()).unwrap();
    let published = [&["webhooks", "--ca-bundle", bundle.to_str().unwrap()], &place[..]].concat();
    let mut webhooks = generate(&published).await;
    for webhook in webhooks.iter_mut().flat_map(|c| c["webhooks"].as_array_mut().unwrap()) {
        webhook["namespaceSelector"] = json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
    }
    cluster.install_webhooks(&webhooks, running.webhooks().await.port()).await;
    running.ready().await;

    let kind = GroupVersionKind::gvk("demo.example", "v1", "Entity");
    let entities: Api<DynamicObject> =
        Api::namespaced_with(cluster.admin(), &name, &ApiResource::from_gvk_with_plural(&kind, "entities"));
    let forbidden: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "demo.example/v1", "kind": "Entity", "metadata": { "name": "a" }, "spec": { "username": "forbidden" },
    }))
    .unwrap();
    let refused = || async {
        let error = entities.create(&PostParams::default(), &forbidden).await.err()?.to_string();
        error.contains("name may not be 'forbidden'").then_some(())
    };
    wait_until("the webhook to be asked", PATIENCE, refused).await;
    fill(&[("tls.crt", &pair.cert_pem), ("tls.key", "gone"), ("ca.crt", owner.cert_pem())]).await;
    running.says("tls.key: the private key cannot be read").await;
    assert!(refused().await.is_some() && running.health("/readyz").await.0 == 200);
    // A pair that was repaired in time is not reported as new.
    fill(&[("tls.crt", &pair.cert_pem), ("tls.key", &pair.key_pem), ("ca.crt", owner.cert_pem())]).await;
    assert!(refused().await.is_some());
    assert!(!running.log().contains("PRIVATE KEY"));
}
