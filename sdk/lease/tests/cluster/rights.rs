//! The rights that the drivers need, and what they say without them.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::PolicyRule;
use portcullis_lease::{Campaign, Scopes};
use portcullis_testing::{ControlPlane, Grant, wait_until};

use crate::{Candidate, DEADLINE, LEASE, scope_timing, timing};

fn rule(verbs: &[&str], name: Option<&str>) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec!["coordination.k8s.io".to_owned()]),
        resources: Some(vec!["leases".to_owned()]),
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

/// What a cluster-wide operator needs: leases of one name, in all namespaces, to read.
pub(crate) fn cluster_wide() -> Grant<'static> {
    static RULES: OnceLock<[PolicyRule; 1]> = OnceLock::new();
    Grant::ClusterRules(RULES.get_or_init(|| [rule(&["list", "watch"], Some(LEASE))]))
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_narrowed_to_the_lease_by_name_are_enough_for_both() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("narrow").await;
    let restricted = cluster.user_with("restricted", &[holder(&namespace)]).await;
    let wide = cluster.user_with("wide", &[cluster_wide()]).await;
    let (scopes, driver) = Scopes::new(wide.client.clone(), &[LEASE], scope_timing()).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    scopes.synced(DEADLINE).await.unwrap();
    let campaign = Campaign::scope(&namespace, LEASE, "restricted").unwrap().timing(timing());
    let holder = Candidate::start(restricted.client.clone(), campaign, 0);
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
    let (scopes, driver) = Scopes::new(wide.client.clone(), &[LEASE], scope_timing()).unwrap();
    let driver = driver.among("example.dev/operator=former", "-leader", &namespace, "former-leader");
    let task = tokio::spawn(driver.run(std::future::pending()));
    let refusal = "cannot list the Leases labelled example.dev/operator=former";
    wait_until("the refusal", DEADLINE, || async { scopes.health().last_error }).await;
    let refused = scopes.synced(3 * scope_timing().freshness());
    let always = async {
        loop {
            let said = scopes.health().last_error;
            assert!(said.as_ref().is_some_and(|said| said.contains(refusal)), "{said:?}");
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
    let (scopes, driver) = Scopes::new(nobody.clone(), &[LEASE], scope_timing()).unwrap();
    let task = tokio::spawn(driver.run(std::future::pending()));
    let refused = scopes.synced(Duration::from_secs(2)).await.unwrap_err().to_string();
    for part in
        ["2s", "cannot list the Leases named scope", "grant", "list and watch in all namespaces", "nobody-at-all"]
    {
        assert!(refused.contains(part), "'{part}' is not in: {refused}");
    }
    let ownership = scopes.owns(&namespace);
    assert!(ownership.must_check() && !ownership.may_write());
    task.abort();

    let campaign = Campaign::leader_election(&namespace, LEASE, "nobody").unwrap().timing(timing());
    let candidate = Candidate::start(nobody, campaign, 0);
    let said = wait_until("what is missing", DEADLINE, || async { candidate.handle.health().last_error }).await;
    assert!(
        said.contains(&format!("cannot read the Lease {namespace}/{LEASE}; grant get, create and patch")),
        "{said}"
    );
    assert_eq!(candidate.handle.held(), None);
    candidate.end().await.unwrap();
}
