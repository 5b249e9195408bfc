//! The rights that the drivers need, and what they say without them.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::PolicyRule;
use portcullis_lease::{LeaseElection, Scopes, Vouchers};
use portcullis_testing::{ControlPlane, Grant, wait_until};

use super::{Candidate, DEADLINE, LEASE, hand_over, quick_scope_timing, scope_timing, timing, vouchers};

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

/// What a holder needs in its namespace: no update, no delete.
pub(crate) fn holder(namespace: &str) -> Grant<'_> {
    static RULES: LazyLock<[PolicyRule; 2]> =
        LazyLock::new(|| [rule(&["get", "patch"], Some(LEASE)), rule(&["create"], None)]);
    Grant::Rules { namespace, rules: &*RULES }
}

/// And to see what vouches for it.
pub(crate) fn vouched(namespace: &str) -> [PolicyRule; 1] {
    [on("admissionregistration.k8s.io", &POLICIES, &["get"], Some(&Vouchers::policy(LEASE, namespace)))]
}

/// What a cluster-wide operator needs: what vouches, and leases of one name, in all namespaces, to read.
pub(crate) fn cluster_wide() -> Grant<'static> {
    static RULES: OnceLock<[PolicyRule; 2]> = OnceLock::new();
    let kinds = ["validatingwebhookconfigurations", POLICIES[0], POLICIES[1]];
    let look = ["list", "watch"];
    let vouchers = || on("admissionregistration.k8s.io", &kinds, &look, None);
    Grant::ClusterRules(RULES.get_or_init(|| [vouchers(), rule(&look, Some(LEASE))]))
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_narrowed_to_the_lease_by_name_are_enough_for_both() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("narrow").await;
    hand_over(cluster, &namespace).await;
    let vouched = vouched(&namespace);
    let restricted = cluster.user_with("restricted", &[holder(&namespace), Grant::ClusterRules(&vouched)]).await;
    let wide = cluster.user_with("wide", &[cluster_wide()]).await;
    let (scopes, driver) = Scopes::new(wide.client.clone(), &[LEASE], vouchers(), scope_timing()).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    scopes.synced(DEADLINE).await.unwrap();
    let timing = timing().settle(Duration::from_millis(100));
    let election = LeaseElection::scope(&namespace, LEASE, "restricted").unwrap().timing(timing).vouched_by(vouchers());
    let holder = Candidate::start(restricted.client.clone(), election, 0);
    holder.holds().await;
    wait_until("the cluster-wide operator to see it", DEADLINE, || async {
        (!scopes.owns(&namespace).must_check()).then_some(())
    })
    .await;
    holder.end().await.unwrap();
    task.abort();
}

/// The role of a former release allows to read the Leases of tenants, and not those of leaders.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_watch_is_refused_is_said_until_it_is_granted_however_well_the_other_goes() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("former").await;
    let wide = cluster.user_with("former", &[cluster_wide()]).await;
    let (scopes, driver) = Scopes::new(wide.client.clone(), &[LEASE], vouchers(), quick_scope_timing()).unwrap();
    let election = LeaseElection::leader_election(&namespace, "former-leader", "me").unwrap();
    let (own, _) = election.with(wide.client.clone());
    let driver = driver.among("example.dev/operator=former", "-leader", &namespace, "former-leader", own);
    let task = tokio::spawn(driver.run(std::future::pending()));
    let attempt = "list leases labelled example.dev/operator=former";
    let refusal = &*format!("cannot {attempt}");
    wait_until("the refusal", DEADLINE, || async { scopes.health().last_error }).await;
    let refused = scopes.synced(3 * quick_scope_timing().freshness());
    let always = async {
        loop {
            let said = scopes.health().last_error;
            // An API server that is slow may not have answered yet.
            assert!(said.as_ref().is_some_and(|said| said.contains(attempt)), "{said:?}");
            tokio::task::yield_now().await;
        }
    };
    let refused =
        tokio::select! { refused = refused => refused.unwrap_err().to_string(), () = always => unreachable!() };
    assert!(refused.contains(refusal), "{refused}");
    task.abort();
}

/// Race 13.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_in_time_and_nothing_is_written_meanwhile() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("none").await;
    let nobody = cluster.client_as("nobody-at-all", &[]);
    let (scopes, driver) = Scopes::new(nobody.clone(), &[LEASE], vouchers(), scope_timing()).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    let refused = scopes.synced(Duration::from_secs(2)).await.unwrap_err().to_string();
    for part in
        ["2s", "cannot list validatingadmissionpolic", "grant", "list and watch in all namespaces", "nobody-at-all"]
    {
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
