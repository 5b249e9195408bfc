//! Side by side, while nothing happens: each object is one operator's.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use portcullis_testing::wait_until;
use serde_json::json;

use super::PATIENCE;
use super::installation::{Installation, checked_by, try_widget, widget, widgets};
use super::turn::Turn;

// Races 2, 5, 10 and 12.
#[tokio::test(flavor = "multi_thread")]
async fn each_object_is_checked_and_written_by_exactly_one_operator() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let (a, b) = (cluster.namespace("team-a").await, cluster.namespace("team-b").await);
    let elsewhere = cluster.namespace("elsewhere").await;
    let acts = ["--acts-in", &[&*a, &*b, &*elsewhere].join(",")];
    let platform = Installation::new(cluster, "platform", None, &acts).await;
    let (first, second) = tokio::join!(
        Installation::new(cluster, "first", Some(&a), &acts),
        Installation::new(cluster, "second", Some(&b), &acts)
    );
    let wide = platform.start(&[]);
    platform.install(&wide).await;
    let client = cluster.admin();
    checked_by(&client, &a, &["platform"]).await;

    let (one, two) = (first.start(&[]), second.start(&[]));
    first.install(&one).await;
    second.install(&two).await;
    for (namespace, who) in [(&a, "first"), (&b, "second"), (&elsewhere, "platform")] {
        checked_by(&client, namespace, &[who]).await;
    }
    one.acts(&a).await;
    two.acts(&b).await;
    wide.acts(&elsewhere).await;
    let settled = std::time::Instant::now();
    for (namespace, who) in [(&a, "first"), (&b, "second"), (&elsewhere, "platform")] {
        for _ in 0..20 {
            let answer = try_widget(&client, namespace, 1).await;
            assert_eq!((answer.status, &*answer.checked, &*answer.marked), (201, &[who.into()][..], &[who.into()][..]));
        }
    }
    let since = |acted: Vec<std::time::Instant>| acted.iter().any(|at| *at > settled);
    for (process, own) in [(&one, &a), (&two, &b), (&wide, &elsewhere)] {
        for namespace in [&a, &b, &elsewhere] {
            assert_eq!(since(process.acted(namespace)), namespace == own, "{namespace}, that of {own}");
        }
    }
    let left_out = wide.said("skipping validation - namespace has namespace-restricted operator");
    assert!(left_out.iter().any(|line| line["namespace"] == *a && line["decision"] == "allow"), "{left_out:?}");
    assert!(!wide.said("skipping mutation - namespace has namespace-restricted operator").is_empty());
    let (_, metrics) = wide.health("/metrics").await;
    // They include namespaces of earlier tests.
    let excluded = metrics.lines().find_map(|line| line.strip_prefix("portcullis_scope_excluded_namespaces "));
    assert!(excluded.unwrap().parse::<u32>().unwrap() >= 2, "{metrics}");
    assert!(metrics.contains("portcullis_scope_age_seconds "), "{metrics}");
    let (_, metrics) = one.health("/metrics").await;
    for line in [
        "portcullis_lease_held{lease=",
        "portcullis_lease_renew_failures_total{",
        "portcullis_lease_transitions_total{",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }

    // Race 10: the selector is removed. The operator knows its namespace all the same.
    let configurations: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        Api::all(client.clone());
    let name = format!("first-validating-{a}");
    let found = configurations.get(&name).await.unwrap();
    let webhook = &found.webhooks.as_ref().unwrap()[0].name;
    let everywhere = json!({ "webhooks": [{ "name": webhook, "namespaceSelector": null }] });
    configurations.patch(&name, &PatchParams::default(), &Patch::Strategic(&everywhere)).await.unwrap();
    let asked = || async {
        let answer = try_widget(&client, &b, 1).await;
        assert_eq!(answer.checked, ["second"]);
        let said = one.said("skipping validation - this operator is restricted to namespace");
        said.into_iter().find(|line| line["namespace"] == *b)
    };
    wait_until("it to be called for another namespace", PATIENCE, asked).await;

    // Race 12: the CRD, and so its conversion, is the cluster-wide operator's alone.
    assert!(first.generated("crds").await.is_empty() && !platform.generated("crds").await.is_empty());
    let rights = first.generated("rbac").await;
    assert!(!rights.iter().any(|role| role.to_string().contains("customresourcedefinitions")), "{rights:?}");
    for installation in [&platform, &first, &second] {
        installation.uninstall().await;
    }
}

// The other role: an operator of another make holds the namespace.
#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_an_operator_of_another_make_is_respected() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let platform = Installation::new(cluster, "platform", None, &[]).await;
    let wide = platform.start(&[]);
    platform.install(&wide).await;
    let client = cluster.admin();
    let team = cluster.namespace("other-make").await;
    // An administrator applies it to hand the namespace over; there, the other operator has another account.
    Installation::new(cluster, "tenant", Some(&team), &[]).await;
    checked_by(&client, &team, &["platform"]).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), &team);
    let lease = json!({
        "metadata": { "name": "scopes-namespace-scope" },
        "spec": { "holderIdentity": "namespace-restricted-operator-1.0.0", "leaseDurationSeconds": 2,
            "renewTime": "2020-01-01T00:00:00.000000Z" },
    });
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    checked_by(&client, &team, &[]).await;
    checked_by(&client, &team, &["platform"]).await;
    platform.uninstall().await;
}

// Race 9: both are called for a tenant's object, so the tenant waits for both; a selector on the cluster-wide
// configuration takes that away.
#[tokio::test(flavor = "multi_thread")]
async fn a_selector_keeps_a_lost_operator_from_blocking_a_tenant() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("team").await;
    let platform = Installation::new(cluster, "platform", None, &[]).await;
    let tenant = Installation::new(cluster, "tenant", Some(&team), &[]).await;
    let (wide, own) = (platform.start(&[]), tenant.start(&[]));
    platform.install(&wide).await;
    tenant.install(&own).await;
    let client = cluster.admin();
    checked_by(&client, &team, &["tenant"]).await;
    wide.signal("KILL").await;
    let refused = || async { (try_widget(&client, &team, 1).await.status == 500).then_some(()) };
    wait_until("the tenant to be refused", PATIENCE, refused).await;
    let selector = json!({ "matchExpressions": [
        { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [team] },
    ] });
    for mut manifest in platform.generated("webhooks").await {
        for webhook in manifest["webhooks"].as_array_mut().unwrap() {
            webhook["namespaceSelector"] = selector.clone();
        }
        cluster.apply(&[manifest]).await;
    }
    checked_by(&client, &team, &["tenant"]).await;
    platform.uninstall().await;
    tenant.uninstall().await;
}

// Race 11: what one set of rules let in is judged by the other's at its next write, and can always go.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_object_meets_other_rules_at_its_next_write() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("skew").await;
    let platform = Installation::new(cluster, "platform", None, &["--max-size", "5"]).await;
    let tenant = Installation::new(cluster, "tenant", Some(&team), &["--max-size", "50"]).await;
    let (wide, mut own) = (platform.start(&[]), tenant.start(&[]));
    platform.install(&wide).await;
    tenant.install(&own).await;
    let client = cluster.admin();
    checked_by(&client, &team, &["tenant"]).await;
    let objects = widgets(cluster, &team);
    let large = serde_json::from_value(widget("large", 20)).unwrap();
    objects.create(&PostParams::default(), &large).await.unwrap();

    own.signal("TERM").await;
    own.ended().await;
    tenant.uninstall().await;
    checked_by(&client, &team, &["platform"]).await;
    let grow = Patch::Merge(json!({ "spec": { "size": 21 } }));
    let refused = objects.patch("large", &PatchParams::default(), &grow).await.unwrap_err();
    assert!(refused.to_string().contains("platform allows 5 at most"), "{refused}");
    let shrink = Patch::Merge(json!({ "spec": { "size": 4 } }));
    objects.patch("large", &PatchParams::default(), &shrink).await.unwrap();
    objects.delete("large", &DeleteParams::default()).await.unwrap();
    platform.uninstall().await;
}

// `WATCH_NAMESPACE` is how other operators are restricted, by people and by the tools that install them.
#[tokio::test(flavor = "multi_thread")]
async fn watch_namespace_restricts_as_the_flag_does() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("watched").await;
    let tenant = Installation::new(cluster, "tenant", Some(&team), &["--acts-in", &*team]).await;
    let own = tenant.start_watching(&team);
    own.acts(&team).await;
    assert!(own.health("/metrics").await.1.contains(&format!("{{lease=\"{team}/scopes-namespace-scope\"}} 1")));

    let mut several = tenant.start_watching("team-a,team-b");
    assert_eq!(several.ended().await.code(), Some(2));
    let said = || async { several.said("make one for each namespace").into_iter().next() };
    wait_until("what to do instead", PATIENCE, said).await;
}
