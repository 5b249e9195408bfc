//! A replica that has lost the API server goes on serving what it had, and learns of nothing.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt as _, watcher};
use portcullis_testing::wait_until;
use tokio::time::Instant;

use super::PATIENCE;
use super::fixture::{CA_SECRET, Installation, Times};
use super::load::QUARTER;

/// The drain lasts longer than the test.
const TIMES: Times = Times { settle: Duration::from_secs(1), drain: Duration::from_mins(5) };

/// Returns as soon as the next CA is the one that issues.
async fn promoted(installation: &Installation) {
    let config = watcher::Config::default().fields(&format!("metadata.name={CA_SECRET}"));
    let mut changes = std::pin::pin!(watcher(installation.secrets(), config).default_backoff().applied_objects());
    let promoted = |secret: &Secret| secret.data.as_ref().is_some_and(|data| !data.contains_key("next.crt"));
    let (mut publishing, deadline) = (false, Instant::now() + PATIENCE);
    while let Some(secret) = tokio::time::timeout_at(deadline, changes.next()).await.unwrap() {
        match secret {
            Ok(secret) if publishing && promoted(&secret) => return,
            Ok(secret) => publishing = !promoted(&secret),
            Err(error) => panic!("{error}"),
        }
    }
}

// D3: what the slowest replica serves stays trusted, whichever replica writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_the_api_server_is_trusted_until_the_drain() {
    let mut installation = Installation::new([0, 0], TIMES).await;
    // All calls go to the slow one, so nothing hides what becomes of them.
    let [quick, slow] = [0, 1].map(|replica| installation.replicas[replica].webhooks);
    installation.forwarder.remove(quick).await;
    let (load, late) = installation.load(QUARTER).await;
    let prompt = installation.caller(slow, Duration::ZERO, &load);
    let begun = Instant::now();
    let [to_quick, to_slow] = &installation.proxies;
    to_slow.cut();
    // No write is undone before others can see it.
    to_quick.delay(Duration::from_millis(150));
    let (before, ()) = tokio::join!(installation.rotate(), promoted(&installation));

    // The promoting replica serves under the old CA and knows that it must stay trusted. Its process ends with that
    // knowledge.
    installation.replicas[0].kill().await;
    installation.proxies[0].delay(Duration::ZERO);
    installation.replace(0).await;
    let after = installation.until("a leaf under the new CA", |seen| seen.leaf != before.leaf).await;
    let enough = prompt.handshakes() + 20;
    wait_until("calls", PATIENCE, || async { (prompt.handshakes() > enough).then_some(()) }).await;
    assert_eq!(prompt.refused(), Vec::<String>::new());
    let seen = installation.seen().await;
    assert_eq!((&seen.leaf, seen.published), (&after.leaf, [2; 3]), "{seen:?}");

    installation.judge("a replica cut off", load, &[late, prompt], begun).await;
}
