//! The binary behind a real API server: what it generates is applied as it is, and it runs with exactly the rights that
//! it asks for.

use crate::acceptance::api::answered_otherwise;
use crate::acceptance::cases::{FILES, File, Vector};
use crate::clusters::cluster_wide;

/// The cases that can be sent to a cluster-wide operator.
fn vectors(file: &str) -> Vec<Vector> {
    let vectors = File::named(file).vectors().into_iter();
    vectors.filter(|vector| !vector.case.restricted && vector.can_be_sent()).collect()
}

#[tokio::test]
async fn a_user_gets_dynamos_answer_to_every_table_row() {
    let (cluster, operator) = cluster_wide().await;
    let namespace = cluster.namespace("cases").await;
    let vectors: Vec<Vector> = FILES.into_iter().flat_map(vectors).collect();
    let wrong = answered_otherwise(cluster, &namespace, &vectors).await;
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), operator.log());
}

/// People search the log for these.
#[tokio::test]
async fn the_log_has_the_lines_of_dynamos_guide() {
    let (cluster, operator) = cluster_wide().await;
    let namespace = cluster.namespace("logged").await;
    let bad = vectors("dynamomodel").into_iter().find(|vector| vector.case.name == "missing modelName").unwrap();
    assert_eq!(answered_otherwise(cluster, &namespace, &[bad]).await, Vec::<String>::new());
    let log = operator.log();
    for line in [
        "Configuring webhooks with lease-based namespace exclusion for cluster-wide mode",
        "Registering validation webhooks",
        "Validation webhooks registered successfully",
        "Webhooks are enabled - webhooks will validate, controllers will skip validation",
        "POD_SERVICE_ACCOUNT/POD_NAMESPACE not set; operator SA self-identification disabled",
        "Starting webhook server",
        "Updated current TLS certificate",
        "Starting certificate watcher",
    ] {
        assert!(log.contains(line), "{line:?} is not in the log:\n{log}");
    }
    let said = |words: &[&str]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(said(&["Registering webhook", "/validate-nvidia-com-v1alpha1-dynamomodel"]), "{log}");
    assert!(said(&["Serving webhook server", "\"host\":\"127.0.0.1\"", "\"port\":"]), "{log}");
    let decision = ["validate create", "vdynamomodel.kb.io", &namespace, "spec.modelName is required"];
    assert!(said(&decision), "{log}");
}
