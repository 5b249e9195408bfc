//! A Lease is a claim that any editor of a namespace can make: what the real ClusterRoles `edit` and `admin` can do
//! with it, and who may do everything in a namespace.

use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use portcullis_testing::{AuditEvent, ControlPlane, Grant, Stopwatch, wait_until};
use serde_json::{Value, json};

use super::faults::{at_most, row};
use super::installation::{Installation, checked_by, try_widget};
use super::process::Process;
use super::turn::Turn;
use super::{DURATION, FRESHNESS, GRACE, PATIENCE, SETTLE};

const LEASE: &str = "scopes-namespace-scope";

/// A user with a binding of this ClusterRole in the namespace, which lets it write Leases there.
async fn bound(cluster: &ControlPlane, namespace: &str, role: &str) -> (String, Client) {
    let roles: Api<ClusterRole> = Api::all(cluster.admin());
    let writes = |role: ClusterRole| {
        let granted = role.rules.unwrap_or_default();
        let leases = |rule: &&PolicyRule| rule.resources.iter().flatten().any(|resource| resource == "leases");
        granted.iter().filter(leases).any(|rule| rule.verbs.iter().any(|verb| verb == "update")).then_some(())
    };
    wait_until("the role to be filled", PATIENCE, || async { writes(roles.get(role).await.ok()?) }).await;
    let user = format!("{role}-of-{namespace}");
    let binding = json!({
        "metadata": { "name": user },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.admin(), namespace);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let client = cluster.client_as(&user, &[]);
    let other: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = json!({ "metadata": { "name": "its-own" } });
    let made = || async {
        let lease = serde_json::from_value(lease.clone()).unwrap();
        other.create(&PostParams::default(), &lease).await.ok()
    };
    wait_until("the rights of an editor", PATIENCE, made).await;
    other.delete("its-own", &DeleteParams::default()).await.unwrap();
    (user, client)
}

#[allow(clippy::disallowed_methods, reason = "an editor may put what they like")]
async fn replaced(leases: &Api<Lease>, lease: &Lease) -> Result<(), kube::Error> {
    leases.replace(LEASE, &PostParams::default(), lease).await.map(drop)
}

fn claim(holder: &str, transitions: u32) -> Lease {
    let lease = json!({
        "metadata": { "name": LEASE },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 60, "leaseTransitions": transitions },
    });
    serde_json::from_value(lease).unwrap()
}

fn renewal() -> Patch<Value> {
    Patch::Merge(json!({ "spec": { "renewTime": format!("{:.6}", jiff::Timestamp::now()) } }))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_editor_takes_the_cluster_wide_operator_off_a_namespace() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let teams = [cluster.namespace("team").await, cluster.namespace("team").await];
    let acts = ["--acts-in", &*teams.join(","), "--max-size", "5"];
    let platform = Installation::new(cluster, "platform", None, &acts).await;
    let wide = platform.start(&[]);
    platform.install(&wide).await;
    let admin = cluster.admin();
    let tries = async |role: &str, team: &str| {
        wide.acts(team).await;
        checked_by(&admin, team, &["platform"]).await;
        let (user, client) = bound(cluster, team, role).await;
        let leases: Api<Lease> = Api::namespaced(client, team);
        // For longer than it takes to notice, whatever is done: made, renewed, taken over, deleted, made again.
        let guarded = async |what: &str| {
            let begun = Instant::now();
            while begun.elapsed() < FRESHNESS {
                leases.patch(LEASE, &PatchParams::default(), &renewal()).await.ok();
                let answer = try_widget(&admin, team, 20).await;
                assert_eq!((answer.status, &*answer.checked), (422, &[][..]), "{what} by {user}: {}", answer.body);
                assert!(answer.body.to_string().contains("platform allows 5 at most"), "{what}: {}", answer.body);
            }
            wide.acts(team).await;
        };
        leases.create(&PostParams::default(), &claim(&user, 1)).await.unwrap();
        guarded("created").await;
        let taken = json!({ "spec": { "holderIdentity": "tenant_1", "leaseTransitions": 2 } });
        leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
        guarded("taken over").await;
        let mut found = leases.get(LEASE).await.unwrap();
        found.spec.as_mut().unwrap().holder_identity = Some(user.clone());
        replaced(&leases, &found).await.unwrap();
        guarded("updated").await;
        leases.delete(LEASE, &DeleteParams::default()).await.unwrap();
        guarded("deleted").await;
    };
    tokio::join!(tries("edit", &teams[0]), tries("admin", &teams[1]));
    assert!(wide.said("skipping validation").is_empty());
    let (_, metrics) = wide.health("/metrics").await;
    assert!(metrics.contains("portcullis_scope_excluded_namespaces 0"), "{metrics}");
    platform.uninstall().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_operator_only_renews_its_own_lease() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let platform = Installation::new(cluster, "platform", None, &[]).await;
    let account = format!("system:serviceaccount:{}:platform", platform.namespace);
    let replicas = [platform.start(&[]), platform.start(&[])];
    platform.install(&replicas[0]).await;
    replicas[1].ready().await;
    // Until then, its certificate is made and published.
    let leads = |process: &Process| !process.said("leading: this replica runs the controllers").is_empty();
    wait_until("one to lead", PATIENCE, || async { replicas.iter().any(leads).then_some(()) }).await;
    checked_by(&cluster.admin(), "default", &["platform"]).await;
    let begun = Instant::now();
    wait_until("it to come to rest", PATIENCE, || async { (begun.elapsed() > 2 * DURATION).then_some(()) }).await;
    let (mark, begun) = (cluster.audit().mark(), Instant::now());
    wait_until("some time of rest", PATIENCE, || async { (begun.elapsed() > 4 * DURATION).then_some(()) }).await;
    let reads = cluster.audit().reads_by(&account, mark).await;
    let own = |read: &&AuditEvent| read.resource == "leases" && read.name == "scopes-leader";
    let others: Vec<_> = reads.iter().filter(|read| !own(read)).collect();
    assert!(others.is_empty(), "{others:?}");
    platform.uninstall().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_editor_of_a_namespace_writes_its_scope_lease() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let all = ["--ignore-failures"];
    let platform = Installation::new(cluster, "platform", None, &all).await;
    let wide = platform.start(&[]);
    platform.install(&wide).await;
    let admin = cluster.admin();
    let tries = async |webhooks: &str, same: bool| {
        let told = format!("webhooks {webhooks}, in the same namespace: {same}");
        let team = cluster.namespace("team").await;
        let home = if same { team.clone() } else { cluster.namespace("home").await };
        let more = ["--webhooks", webhooks, "--acts-in", &team];
        let tenant = Installation::living_in(cluster, "tenant", home.clone(), Some(&team), &more).await;
        let mut users = vec![bound(cluster, &team, "edit").await, bound(cluster, &team, "admin").await];
        let words = || Some(vec!["*".to_owned()]);
        let anything = PolicyRule {
            api_groups: words(),
            resources: words(),
            verbs: words().unwrap_or_default(),
            ..PolicyRule::default()
        };
        let all = cluster.user_with("all", &[Grant::Rules { namespace: &team, rules: &[anything] }]).await;
        users.push((all.name.clone(), all.client.clone()));
        let refused = |what: &str, user: &str, outcome: Result<(), kube::Error>| match outcome {
            Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("restricted operator") => {}
            outcome => panic!("{user} {what} the Lease ({told}): {outcome:?}"),
        };
        // The policy comes into force a moment after it is made.
        let first: Api<Lease> = Api::namespaced(users[0].1.clone(), &team);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let in_force = || async { first.create(&dry, &claim("nobody", 1)).await.err() };
        wait_until("the policy to be in force", PATIENCE, in_force).await;
        for (user, client) in &users {
            let leases: Api<Lease> = Api::namespaced(client.clone(), &team);
            refused("created", user, leases.create(&PostParams::default(), &claim(user, 1)).await.map(drop));
        }

        let own = tenant.start(&[]);
        if webhooks == "on" {
            tenant.install(&own).await;
        }
        own.acts(&team).await;
        let checks: &[&str] = if webhooks == "on" { &["tenant"] } else { &[] };
        checked_by(&admin, &team, checks).await;
        let leases: Api<Lease> = Api::namespaced(admin.clone(), &team);
        let before = leases.get(LEASE).await.unwrap();
        for (user, client) in &users {
            let tried: Api<Lease> = Api::namespaced(client.clone(), &team);
            let params = PatchParams::default();
            refused("renewed", user, tried.patch(LEASE, &params, &renewal()).await.map(drop));
            let take_over = async || {
                let mut taken = tried.get(LEASE).await.unwrap();
                taken.spec.as_mut().unwrap().holder_identity = Some(user.clone());
                replaced(&tried, &taken).await
            };
            // Its holder renews it between the two requests now and then.
            let mut outcome = take_over().await;
            while matches!(&outcome, Err(kube::Error::Api(status)) if status.code == 409) {
                outcome = take_over().await;
            }
            refused("took over", user, outcome);
            let mut taken = serde_json::to_value(claim(user, 7)).unwrap();
            (taken["apiVersion"], taken["kind"]) = ("coordination.k8s.io/v1".into(), "Lease".into());
            let apply = PatchParams::apply("editor").force();
            refused("applied", user, tried.patch(LEASE, &apply, &Patch::Apply(&taken)).await.map(drop));
            refused("deleted", user, tried.delete(LEASE, &DeleteParams::default()).await.map(drop));
            let every = tried.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
            refused("deleted with all others", user, every.map(drop));
            // A user cannot grant a right that they lack.
            let hold = json!({ "apiGroups": ["portcullis.dev"], "resources": ["namespacescopes"], "verbs": ["hold"] });
            let role = json!({ "metadata": { "name": "hold" }, "rules": [hold] });
            let roles: Api<k8s_openapi::api::rbac::v1::Role> = Api::namespaced(client.clone(), &team);
            let granted = roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await;
            if user.starts_with("edit") || user.starts_with("admin") {
                assert!(granted.is_err(), "{user} grants what it does not hold");
            }
        }
        let after = leases.get(LEASE).await.unwrap();
        assert_eq!(
            (&after.metadata.uid, after.spec.unwrap().holder_identity),
            (&before.metadata.uid, before.spec.unwrap().holder_identity)
        );
        own.acts(&team).await;

        // Where it lives in the namespace itself, its editors can act as its ServiceAccount: the documentation advises
        // another one.
        let mut config = cluster.config_as(&users[0].0, &[]);
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{home}:tenant"));
        let disguised: Api<Lease> = Api::namespaced(Client::try_from(config).unwrap(), &team);
        let outcome = disguised.patch(LEASE, &PatchParams::default(), &renewal()).await;
        assert_eq!(outcome.is_ok(), same, "{told}: {outcome:?}");
        tenant.uninstall().await;
    };
    tokio::join!(tries("on", true), tries("on", false), tries("off", true), tries("off", false));
    platform.uninstall().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_the_handover_policy_lets_no_two_write() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("team").await;
    let more = ["--acts-in", &*team];
    let platform = Installation::new(cluster, "platform", None, &more).await;
    let off = ["--webhooks", "off", "--acts-in", &*team];
    let tenant = Installation::new(cluster, "tenant", Some(&team), &off).await;
    let (wide, own) = (platform.start(&[]), tenant.start(&[]));
    platform.install(&wide).await;
    let admin = cluster.admin();
    own.acts(&team).await;
    checked_by(&admin, &team, &[]).await;

    let begun = Stopwatch::start();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(admin.clone());
    bindings.delete(&format!("{LEASE}.{team}"), &DeleteParams::default()).await.unwrap();
    checked_by(&admin, &team, &["platform"]).await;
    let unchecked = begun.started().elapsed();
    assert!(unchecked < at_most(Duration::from_secs(1), &begun), "no operator checked for {unchecked:?}");
    let (_, editor) = bound(cluster, &team, "edit").await;
    let leases: Api<Lease> = Api::namespaced(editor, &team);
    let kept = tokio::spawn(async move {
        loop {
            leases.patch(LEASE, &PatchParams::default(), &renewal()).await.ok();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    wide.acts(&team).await;
    kept.abort();
    row("the binding is deleted", &[wide.acted(&team), own.acted(&team)], &begun, DURATION + GRACE + FRESHNESS, None);
    let said = || async { own.said("is not handed over").into_iter().next() };
    wait_until("it to say why it stopped", PATIENCE, said).await;

    // Made again, it is handed over again.
    cluster.apply(&tenant.generated("rbac").await).await;
    own.acts(&team).await;
    assert!(begun.started().elapsed() > SETTLE);
    platform.uninstall().await;
}

// To remove webhooks while debugging takes nothing back, and to install them hands nothing over.
#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_of_the_namespace_alone_hands_nothing_over() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("team").await;
    let platform = Installation::new(cluster, "platform", None, &["--acts-in", &*team]).await;
    let wide = platform.start(&[]);
    platform.install(&wide).await;
    let admin = cluster.admin();
    let tenant = Installation::new(cluster, "tenant", Some(&team), &["--ignore-failures"]).await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(admin.clone());
    bindings.delete(&format!("{LEASE}.{team}"), &DeleteParams::default()).await.unwrap();
    cluster.install_webhooks(&tenant.generated("webhooks").await, 1).await;
    let leases: Api<Lease> = Api::namespaced(admin.clone(), &team);
    leases.create(&PostParams::default(), &claim("tenant", 1)).await.unwrap();
    let begun = Instant::now();
    while begun.elapsed() < 2 * FRESHNESS {
        leases.patch(LEASE, &PatchParams::default(), &renewal()).await.unwrap();
        checked_by(&admin, &team, &["platform"]).await;
    }
    wide.acts(&team).await;
    tenant.uninstall().await;
    platform.uninstall().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_was_handed_over_can_be_deleted() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let (team, home) = (cluster.namespace("team").await, cluster.namespace("home").await);
    let off = ["--webhooks", "off", "--acts-in", &*team];
    let tenant = Installation::living_in(cluster, "tenant", home, Some(&team), &off).await;
    let own = tenant.start(&[]);
    own.acts(&team).await;
    let namespaces: Api<Namespace> = Api::all(cluster.admin());
    namespaces.delete(&team, &DeleteParams::default()).await.unwrap();
    let gone = || async { namespaces.get_opt(&team).await.unwrap().is_none().then_some(()) };
    wait_until("the namespace to be gone", PATIENCE, gone).await;
}
