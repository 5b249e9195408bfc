//! The rights that the drivers need, and what they say without them.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::PolicyRule;
use portcullis_testing::{ControlPlane, Grant, wait_until};

use crate::handovers::policy_name;
use crate::{LeaseElection, Scopes};

use super::{Candidate, DEADLINE, LEASE, OPERATOR, hand_over, scope_timing, timing};

fn rule(verbs: &[&str], name: Option<&str>) -> PolicyRule {
    on("coordination.k8s.io", &["leases"], verbs, name)
}

const POLICIES: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];

fn on(group: &str, resources: &[&str], verbs: &[&str], name: Option<&str>) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(|resource| (*resource).to_owned()).collect()),
        resource_names: name.map(|name| vec![name.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

/// The rights of a holder in its namespace: no update, no delete.
pub(crate) fn holder(namespace: &str) -> Grant<'_> {
    static RULES: LazyLock<[PolicyRule; 2]> =
        LazyLock::new(|| [rule(&["get", "patch"], Some(LEASE)), rule(&["create"], None)]);
    Grant::Rules { namespace, rules: &*RULES }
}

/// The rights to read the policy that hands the namespace over.
pub(crate) fn handed_over(namespace: &str) -> [PolicyRule; 1] {
    [on("admissionregistration.k8s.io", &POLICIES, &["get"], Some(&policy_name(LEASE, namespace)))]
}

/// The rights of a cluster-wide operator: it reads policies with their bindings, and Leases of one name.
pub(crate) fn cluster_wide() -> Grant<'static> {
    static RULES: OnceLock<[PolicyRule; 2]> = OnceLock::new();
    let look = ["list", "watch"];
    let policies = || on("admissionregistration.k8s.io", &POLICIES, &look, None);
    Grant::ClusterRules(RULES.get_or_init(|| [policies(), rule(&look, Some(LEASE))]))
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_narrowed_to_the_lease_by_name_are_enough_for_both() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("narrow").await;
    hand_over(cluster, &namespace).await;
    let handed_over = handed_over(&namespace);
    let restricted = cluster.user_with("restricted", &[holder(&namespace), Grant::ClusterRules(&handed_over)]).await;
    let wide = cluster.user_with("wide", &[cluster_wide()]).await;
    let (scopes, driver) = Scopes::new(wide.client.clone(), OPERATOR, LEASE, scope_timing()).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    wait_until("the view", DEADLINE, || async { scopes.unknown().is_none().then_some(()) }).await;
    let timing = timing().settle(Duration::from_millis(100));
    let election = LeaseElection::scope(&namespace, LEASE, "restricted").unwrap().timing(timing);
    let holder = Candidate::start(restricted.client.clone(), election, 0);
    holder.holds().await;
    wait_until("the cluster-wide operator to see it", DEADLINE, || async {
        (!scopes.owns(&namespace).must_check()).then_some(())
    })
    .await;
    holder.end().await.unwrap();
    task.abort();
}

/// Race 13.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_in_time_before_any_write() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("none").await;
    let nobody = cluster.client_as("nobody-at-all", &[]);
    let (scopes, driver) = Scopes::new(nobody.clone(), OPERATOR, LEASE, scope_timing()).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    let said = || async { scopes.unknown().filter(|said| said.contains("nobody-at-all")) };
    let refused = wait_until("the refusal", DEADLINE, said).await;
    for part in ["cannot list validatingadmissionpolic", "grant", "list and watch in all namespaces", "nobody-at-all"] {
        assert!(refused.contains(part), "'{part}' is not in: {refused}");
    }
    let ownership = scopes.owns(&namespace);
    assert!(ownership.must_check() && !ownership.may_write());
    task.abort();

    let election = LeaseElection::leader_election(&namespace, LEASE, "nobody").unwrap().timing(timing());
    let candidate = Candidate::start(nobody, election, 0);
    let said = wait_until("what is missing", DEADLINE, || async { candidate.handle.health().last_error }).await;
    assert!(
        said.contains(&format!(
            "cannot read the Lease {namespace}/{LEASE}; grant what 'generate rbac' prints: get, create and patch"
        )),
        "{said}"
    );
    assert_eq!(candidate.handle.held(), None);
    candidate.end().await.unwrap();
}
