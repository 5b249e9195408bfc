//! The API server's reaction to a 429.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis::server::Limits;
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::gate::{Gate, SERVICE};
use crate::client::PATIENCE;
use crate::fixture::serve;

/// A webhook that takes one review at a time is busy with one; the API server's second call is shed, asked again after
/// the second that `Retry-After` says, and decided. Its user notices nothing.
#[tokio::test]
async fn the_api_server_retries_a_shed_review_unnoticed_by_its_user() {
    let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (arrived, release) = (Arc::clone(&arrived), Arc::clone(&release));
        move |new: Arc<ConfigMap>, _: Context| {
            let (arrived, release) = (Arc::clone(&arrived), Arc::clone(&release));
            async move {
                match new.data.as_ref().and_then(|data| data.keys().next()).map(String::as_str) {
                    Some("password") => return Verdict::deny("passwords belong in Secrets"),
                    Some("slow") => {
                        arrived.notify_one();
                        release.notified().await;
                    }
                    _ => {}
                }
                Verdict::allow()
            }
        }
    };
    let webhooks = Webhooks::new().validate(Validate::<ConfigMap>::new("one").on_create(handler).concurrency(1));
    let routes = webhooks.routes().unwrap();
    let namespace = ControlPlane::shared().await.namespace("retry").await;
    let name = format!("{SERVICE}.{namespace}.svc");
    let serving = serve(routes.clone(), Limits::default(), &[&name]).await;
    let port = serving.address.port();
    let gate = Gate::open(&namespace, &namespace, "/validate/one", serving.ca.cert_pem(), port).await;
    gate.decides().await;

    let second = async {
        timeout(PATIENCE, arrived.notified()).await.expect("the first is with its handler");
        let shed = async {
            wait_until("the second to be shed", PATIENCE, || async {
                routes.metrics().encode().contains("reason=\"shed\"").then_some(())
            })
            .await;
            release.notify_one();
        };
        tokio::join!(timeout(PATIENCE, gate.create(json!({"other": "x"}))), shed).0
    };
    let (first, second) = tokio::join!(gate.create(json!({"slow": "x"})), second);
    first.expect("the first is decided when its handler is done");
    second.expect("a decision in time").expect("the second is decided, too");
}
