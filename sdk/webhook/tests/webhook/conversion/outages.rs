//! The webhook away, and back.

use std::time::Duration;

use kube::api::{ListParams, PostParams};
use portcullis_testing::{Stopwatch, wait_until};
use serde_json::json;

use super::fixture::{Home, PATIENCE};
use super::kinds::down;

/// The API server's own cache of the kind, which ended with the outage, tries again at pauses of its own.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn conversions_work_again_as_soon_as_the_webhook_is_back() {
    let mut home = Home::new(down::convert(), down::crd("v1")).await;
    let create = PostParams::default();
    let ada = |name: &str| home.person("v1", name, json!({ "name": "Ada Lovelace" }));
    home.api("v1").create(&create, &ada("before")).await.unwrap();
    assert_eq!(home.api("v3").list(&ListParams::default()).await.unwrap().items.len(), 1);

    home.shut_down().await;
    let problem = home.api("v3").get("before").await.unwrap_err().to_string();
    assert!(problem.contains("conversion webhook") && problem.contains("failed"), "{problem}");
    // Requests without a conversion still work.
    let during = home.person("v1", "during", json!({ "name": "Ada Lovelace" }));
    home.api("v1").create(&create, &during).await.unwrap();
    assert_eq!(home.api("v1").list(&ListParams::default()).await.unwrap().items.len(), 2);
    let uncached = ListParams::default().limit(10);
    let failing = || async { home.api("v3").list(&uncached).await.err() };
    wait_until("lists to fail", PATIENCE, failing).await;

    home.serve().await;
    let began = Stopwatch::start();
    assert_eq!(home.api("v3").get("during").await.unwrap().data["spec"]["last"], "Lovelace", "the first call succeeds");
    let both = || async {
        let list = home.api("v3").list(&ListParams::default()).await.ok()?;
        (list.items.len() == 2).then_some(())
    };
    wait_until("lists to work", PATIENCE, both).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}
