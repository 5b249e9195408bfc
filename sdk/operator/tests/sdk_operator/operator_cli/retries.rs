//! An API server that asks to come again in an hour: what has to be renewed in time does not wait for that.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::DeleteParams;
use kube::client::Body;
use kube::{Api, Client};
use portcullis_testing::wait_until;
use serde_json::json;
use tokio::net::TcpListener;

use super::cluster::{cluster, generate};
use super::process::{PATIENCE, Running};

/// A way to the API server, as this client, on which the first request of each sort for what certificates and leases are
/// made of is put off for an hour.
#[derive(Clone)]
struct Gate {
    client: Client,
    put_off: Arc<Mutex<HashSet<String>>>,
}

impl Gate {
    /// Where it listens.
    async fn open(client: Client) -> (Self, String) {
        let gate = Self { client, put_off: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = gate.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let gate = serving.clone();
                let answer = service_fn(move |request| {
                    let gate = gate.clone();
                    async move { Ok::<_, Infallible>(gate.answer(request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        (gate, url)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let kept = ["/leases", "/secrets", "webhookconfigurations", "/validatingadmissionpol"];
        let watch = head.uri.query().is_some_and(|query| query.contains("watch=true"));
        let sort = format!("{} {}{}", head.method, head.uri.path(), if watch { " watch" } else { "" });
        let first = || self.put_off.lock().unwrap().insert(sort.clone());
        if kept.iter().any(|part| head.uri.path().contains(part)) && first() {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": "later"});
            let answer = Response::builder().status(503).header("retry-after", "3600");
            return answer.body(Body::from(status.to_string().into_bytes())).unwrap();
        }
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        match self.client.send(Request::from_parts(head, Body::from(body))).await {
            Ok(answer) => answer,
            Err(error) => Response::builder().status(502).body(Body::from(error.to_string().into_bytes())).unwrap(),
        }
    }

    fn put_off(&self, method: &Method, part: &str) -> bool {
        let all = self.put_off.lock().unwrap();
        all.iter().any(|sort| sort.starts_with(method.as_str()) && sort.contains(part))
    }
}

#[tokio::test]
async fn an_answer_that_asks_to_come_again_in_an_hour_keeps_back_neither_lease_nor_certificate() {
    let cluster = cluster().await;
    let (home, team) = (cluster.namespace("op").await, cluster.namespace("team").await);
    let flags = [
        "--release",
        "put-off",
        "--namespace",
        &home,
        "--restrict-to-namespace",
        &team,
        "--use-service-account-credentials=false",
    ];
    let user = cluster.user_of(&generate(&[&["rbac"], &flags[..]].concat()).await).await;
    let (gate, url) = Gate::open(user.client.clone()).await;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "gate",
        "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "none"}}],
        "clusters": [{"name": "gate", "cluster": {"server": url}}],
        "users": [{"name": "none", "user": {}}],
    });
    let file = cluster.directory().join("gate.kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let running = Running::start(&[&flags[..], &["--kubeconfig", file.to_str().unwrap()]].concat());
    let webhooks = generate(&[&["webhooks"], &flags[..]].concat()).await;
    cluster.install_webhooks(&webhooks, running.webhooks().await.port()).await;
    running.logged("leading: this replica runs the controllers").await;
    wait_until("readiness", PATIENCE, || async { (running.health("/readyz").await.0 == 200).then_some(()) }).await;
    for (method, part) in [(Method::GET, "/leases/"), (Method::PATCH, "/leases/"), (Method::GET, "/secrets")] {
        assert!(gate.put_off(&method, part), "{method} {part} was not put off");
    }
    // Nobody answers them from here on.
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
