//! Race 13: a right that is missing is said, with what to do.

use portcullis_testing::wait_until;

use super::PATIENCE;
use super::installation::Installation;
use super::turn::Turn;

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_on_leases_are_named_and_block_readiness() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("poor").await;
    let platform = Installation::new(cluster, "platform", None, &["--acts-in", &team]).await;
    let tenant = Installation::new(cluster, "tenant", Some(&team), &["--acts-in", &team]).await;
    let nobody = cluster.kubeconfig_as("nobody", &[]).display().to_string();
    for (installation, what) in [(&platform, "scopes-leader"), (&tenant, "scopes-namespace-scope")] {
        let process = installation.start_by(&nobody, &["--webhooks", "off"]);
        let said = || async {
            let (status, body) = process.health("/readyz").await;
            assert_eq!(status, 503, "{body}");
            (body.contains(what) && body.contains("get, create and patch on leases")).then_some(())
        };
        wait_until("the right that is missing", PATIENCE, said).await;
        assert!(process.acted(&team).is_empty(), "{} writes on what it does not know", installation.release);
    }
    // With the leader's rights and without those on the other namespaces, it knows nothing of them.
    let single = platform.start_by(&nobody, &["--webhooks", "off", "--leader-elect", "off"]);
    let said = || async {
        let (_, body) = single.health("/readyz").await;
        (body.contains("the owners of all namespaces") && body.contains("list and watch in all namespaces"))
            .then_some(())
    };
    wait_until("the right that is missing", PATIENCE, said).await;
    assert!(single.acted(&team).is_empty());
}
