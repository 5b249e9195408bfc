//! An operator that is restricted to a namespace, behind a real API server.

use crate::acceptance::api::answered_otherwise;
use crate::acceptance::cases::{FILES, File, Vector};
use crate::clusters::{binary, unguarded};

#[tokio::test]
async fn a_restricted_operator_judges_its_own_namespace_only() {
    let cluster = unguarded().await;
    let (team, others) = (cluster.namespace("team").await, cluster.namespace("others").await);
    // The kinds are the business of the cluster-wide operator.
    cluster.install_crds(&dynamo_webhooks::kinds::crds()).await;
    let operator = binary()
        .flags(["--restrict-to-namespace", team.as_str()])
        .run_flags(["--log-format", "json"])
        .install(cluster)
        .await;
    let vectors: Vec<Vector> = FILES.into_iter().flat_map(|file| File::named(file).vectors()).collect();
    let of_restricted: Vec<Vector> = vectors.into_iter().filter(|vector| vector.case.restricted).collect();
    assert_eq!(of_restricted.len(), 3);
    let wrong = answered_otherwise(cluster, &team, &of_restricted).await;
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), operator.log());

    let log = operator.log();
    let mode = "Configuring webhooks for namespace-restricted mode (no lease checking)";
    assert!(log.lines().any(|line| line.contains(mode) && line.contains(&team)), "{log}");

    // Two of the three are invalid, and no condition says so.
    assert_eq!(answered_otherwise(cluster, &others, &of_restricted).await.len(), 2);
    assert!(!operator.log().contains(&others), "{}", operator.log());
}
