//! An API server that asks to come again in an hour: what has to be renewed in time does not wait for that.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use http::request::Parts;
use http::{Method, Response};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::Api;
use kube::api::DeleteParams;
use kube::client::Body;
use portcullis_testing::wait_until;
use serde_json::json;

use super::cluster::{cluster, generate};
use super::gate::{self, Instead};
use super::process::{PATIENCE, Running};

/// The first request of each sort for what certificates and leases are made of is put off for an hour.
#[derive(Clone, Default)]
struct PutOff(Arc<Mutex<HashSet<String>>>);

impl PutOff {
    fn answer(&self, head: &Parts) -> Option<Instead> {
        let kept = ["/leases", "/secrets", "webhookconfigurations", "/validatingadmissionpol"];
        let watch = head.uri.query().is_some_and(|query| query.contains("watch=true"));
        let sort = format!("{} {}{}", head.method, head.uri.path(), if watch { " watch" } else { "" });
        let first = || self.0.lock().unwrap().insert(sort);
        (kept.iter().any(|part| head.uri.path().contains(part)) && first()).then(|| {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": "later"});
            let answer = Response::builder().status(503).header("retry-after", "3600");
            Instead::Answer(answer.body(Body::from(status.to_string().into_bytes())).unwrap())
        })
    }

    fn has(&self, method: &Method, part: &str) -> bool {
        let all = self.0.lock().unwrap();
        all.iter().any(|sort| sort.starts_with(method.as_str()) && sort.contains(part))
    }
}

#[tokio::test]
async fn retry_after_delays_neither_lease_nor_certificate() {
    let cluster = cluster().await;
    let (home, team) = (cluster.namespace("op").await, cluster.namespace("team").await);
    let flags = ["--release", "put-off", "--namespace", &home, "--restrict-to-namespace", &team];
    let user = cluster.user_from_manifests(&generate(&[&["rbac"], &flags[..]].concat()).await).await;
    let put_off = PutOff::default();
    let answering = put_off.clone();
    let kubeconfig = gate::open(cluster, user.client.clone(), move |head| answering.answer(head)).await;
    // A leader's own times, and a namespace that is settled soon.
    let quick = ["--kubeconfig", &kubeconfig, "--lease-timing", "15s,10s,1s,600ms,1s,500ms"];
    let running = Running::start(&[&flags[..], &quick].concat());
    let webhooks = generate(&[&["webhooks"], &flags[..]].concat()).await;
    cluster.install_webhooks(&webhooks, running.webhooks().await.port()).await;
    running.logged("leading: this replica runs the controllers").await;
    wait_until("readiness", PATIENCE, || async { (running.health("/readyz").await.0 == 200).then_some(()) }).await;
    for (method, part) in [(Method::GET, "/leases/"), (Method::PATCH, "/leases/"), (Method::GET, "/secrets")] {
        assert!(put_off.has(&method, part), "{method} {part} was not put off");
    }
    // They get no answer from here on.
    let (validating, mutating): (Api<ValidatingWebhookConfiguration>, Api<MutatingWebhookConfiguration>) =
        (Api::all(cluster.admin()), Api::all(cluster.admin()));
    for manifest in webhooks {
        let (name, now) = (manifest["metadata"]["name"].as_str().unwrap(), DeleteParams::default());
        match manifest["kind"].as_str() {
            Some("ValidatingWebhookConfiguration") => _ = validating.delete(name, &now).await.unwrap(),
            Some("MutatingWebhookConfiguration") => _ = mutating.delete(name, &now).await.unwrap(),
            _ => {}
        }
    }
}
