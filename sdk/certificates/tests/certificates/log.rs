//! The log names another client that keeps rewriting the bundles.

use k8s_openapi::ByteString;
use kube::api::{Patch, PatchParams};
use portcullis_testing::Log;
use serde_json::json;

use crate::fixture::Place;

// Issue 20 of the book's list: people could not find out who it was.
#[tokio::test]
async fn a_client_that_rewrites_a_bundle_is_named() {
    let (log, _guard) = Log::listen();
    let place = Place::new().await;
    place.install(&["a"]).await;
    let pem = place.source().ensure().await.unwrap().ca_pem;
    let publisher = place.publish(&pem, &["a"]);
    publisher.published().await;
    // A bundle that is missing from the start is no manager's fault.
    assert!(!log.take().contains("others="));
    for (bundle, named) in [(Some("not a bundle"), "gitops"), (None, "installer")] {
        let mut webhooks = place.manifest(&["a"])["webhooks"].clone();
        webhooks[0]["clientConfig"]["caBundle"] = json!(bundle.map(|text| ByteString(text.as_bytes().to_vec())));
        let rival = PatchParams { field_manager: Some("gitops".to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "webhooks": webhooks }));
        place.configuration_api().patch(&place.configuration(), &rival, &patch).await.unwrap();
        place.wait_for_bundles("the repair", &[("a", Some(&pem))]).await;
        let said = log.take();
        // A manager that only removes a field leaves no trace, so the log names all others.
        assert!(said.contains(&format!("others=\"{named}\"")), "{said}");
    }
    publisher.stop().await;
}
