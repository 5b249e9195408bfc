//! An operator embedded in another process: this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::PostParams;
use portcullis::manifest::{ServiceRef, validating_configuration};
use portcullis::operator::{EmbedOptions, Operator};
use portcullis::server::Incoming;
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use portcullis_testing::ControlPlane;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Nothing in this test takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// Other tests make ConfigMaps without it.
const LABEL: &str = "application.example/checked";

async fn no_passwords(new: Arc<ConfigMap>, _: Context) -> Verdict {
    if new.data.iter().flatten().any(|(key, _)| key == "password") {
        Verdict::deny("passwords belong in Secrets").code(422)
    } else {
        Verdict::allow()
    }
}

fn webhooks() -> Webhooks {
    let checked =
        LabelSelector { match_labels: Some([(LABEL.to_owned(), String::new())].into()), ..Default::default() };
    Webhooks::new()
        .validate(Validate::<ConfigMap>::new("no-passwords").object_selector(checked).on_create_or_update(no_passwords))
}

fn map(name: &str, data: Value) -> ConfigMap {
    let metadata = json!({ "name": name, "labels": { LABEL: "" } });
    serde_json::from_value(json!({ "metadata": metadata, "data": data })).unwrap()
}

/// K9
#[tokio::test(flavor = "multi_thread")]
async fn an_application_runs_an_operator_behind_its_own_router() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("application").await;
    let operator = Operator::new("no-passwords").webhooks(webhooks());
    let mut options = EmbedOptions::new(operator.installation(&namespace).unwrap());
    options.bind = "127.0.0.1:0".parse().unwrap();
    options.drain_delay = Duration::ZERO;
    let embedded = operator.embed(cluster.admin(), options).await.unwrap();

    let port = embedded.local_addr().unwrap().port();
    let service = ServiceRef { namespace: namespace.clone(), name: "no-passwords-webhook".into(), port };
    let entries = webhooks().manifests().unwrap();
    let configuration = json!(validating_configuration("no-passwords-validating", &entries, &service));
    cluster.install_webhooks(&[configuration], port).await;

    let (metrics, readiness) = (embedded.metrics().clone(), embedded.readiness());
    let (routes, passed) = (embedded.routes().clone(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&passed);
    let application = move |request: Request<Incoming>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let routes = routes.clone();
        async move { routes.oneshot(request).await.unwrap_or_else(|never| match never {}) }
    };
    assert!(readiness.waiting_for().is_some(), "it is not ready before it runs");
    let stop = CancellationToken::new();
    let running = tokio::spawn(embedded.run_with_handler(application, stop.clone()));
    timeout(PATIENCE, readiness.ready()).await.unwrap();
    cluster.wait_for_webhooks().await;

    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &cluster.namespace("team").await);
    let refused = maps.create(&PostParams::default(), &map("one", json!({ "password": "1234" }))).await.unwrap_err();
    let kube::Error::Api(status) = &refused else { panic!("{refused}") };
    assert!(status.code == 422 && status.message.ends_with("passwords belong in Secrets"), "{refused}");
    maps.create(&PostParams::default(), &map("one", json!({ "colour": "blue" }))).await.unwrap();
    assert!(passed.load(Ordering::Relaxed) >= 2, "calls pass the application's own application");
    assert!(metrics.encode().contains("no-passwords"), "{}", metrics.encode());

    stop.cancel();
    timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
    assert!(readiness.waiting_for().is_some(), "it is not ready when it has ended");
}
