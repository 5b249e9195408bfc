//! What is said when somebody else keeps rewriting what callers trust. A test binary of its own: what is logged is logged
//! on the threads of one test.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "another test binary uses the rest")]
#[path = "certificates/fixture.rs"]
mod fixture;

use k8s_openapi::ByteString;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use fixture::{Log, Place};

// Issue 20 of the book's list: people could not find out who it was.
#[tokio::test]
async fn whoever_rewrites_a_bundle_is_named() {
    let (log, _guard) = Log::listen();
    let place = Place::new().await;
    place.install(&["a"]).await;
    let pem = place.source().ensure().await.unwrap().ca_pem;
    let publisher = place.publish(&pem, &["a"]);
    publisher.published().await;
    // What is there from the start is nobody's fault.
    assert!(!log.text().contains("others="));
    for (bundle, named) in [(Some("not a bundle"), "gitops"), (None, "installer")] {
        let mut webhooks = place.manifest(&["a"])["webhooks"].clone();
        webhooks[0]["clientConfig"]["caBundle"] = json!(bundle.map(|text| ByteString(text.as_bytes().to_vec())));
        let rival = PatchParams { field_manager: Some("gitops".to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "webhooks": webhooks }));
        place.configuration_api().patch(&place.configuration(), &rival, &patch).await.unwrap();
        place.wait_for_bundles("the repair", &[("a", Some(&pem))]).await;
        let said = log.text();
        // Who only takes something out leaves no trace, so all others are named.
        assert!(said.contains(&format!("others=\"{named}\"")), "{said}");
    }
    publisher.stop().await;
}
