//! CEL rules of a session: policies that go with it.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use portcullis_testing::wait_until;
use serde_json::json;

use super::fixture::{cluster, start};
use super::process::PATIENCE;

/// The example with a rule that the API server evaluates by itself.
const RULES: &str = "policy_operator";

// K6
#[tokio::test]
async fn cel_rules_hold_for_the_namespaces_of_a_session_and_end_with_it() {
    let cluster = cluster().await;
    let (team, others) = (cluster.namespace("team").await, cluster.namespace("others").await);
    let name = "small-maps-dev-rules-validating.dev.small.configmaps.core";
    let refused = async |namespace: &str| {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), namespace);
        let large = json!({ "metadata": { "name": "large" }, "data": { "a": "", "b": "", "c": "" } });
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        match maps.create(&dry, &serde_json::from_value(large).unwrap()).await {
            Err(kube::Error::Api(status))
                if status.message.contains(&format!("ValidatingAdmissionPolicy '{name}'")) =>
            {
                true
            }
            made => made.map(|_| false).unwrap(),
        }
    };
    let mut dev = start(cluster, RULES, "rules", &["--only-namespace", &team]);
    dev.open().await;
    wait_until("the policy to be in force", PATIENCE, || async { refused(&team).await.then_some(()) }).await;
    assert!(!refused(&others).await);
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.admin());
    // A machine that is forgotten locks nobody out by a rule that cannot be evaluated.
    assert_eq!(policies.get(name).await.unwrap().spec.unwrap().failure_policy.as_deref(), Some("Ignore"));

    let said = dev.end("-TERM").await;
    assert!(said.contains(&format!("ValidatingAdmissionPolicy {name} and its binding")), "{said}");
    assert!(said.contains("the API server evaluates CEL rules itself"), "{said}");
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.admin());
    let left = (policies.get_opt(name).await.unwrap(), bindings.get_opt(name).await.unwrap());
    assert_eq!(left, (None, None), "{said}");
}
