//! Rights: what is everywhere, what is in one namespace, and what becomes of it when the operator is restricted to one.

use k8s_openapi::api::rbac::v1::PolicyRule;
use portcullis_manifest::{Access, Account, named_policy_rule, policy_rule};
use serde_json::{Value, json};

fn account(restricted_to: Option<&str>) -> Account {
    let cluster_role = restricted_to.map_or_else(|| "op".to_owned(), |namespace| format!("op-{namespace}"));
    Account {
        name: "op".into(),
        namespace: "demo".into(),
        leader_election_namespace: "demo".into(),
        cluster_role,
        restricted_to: restricted_to.map(Into::into),
    }
}

fn access() -> Access {
    Access {
        watched: vec![
            policy_rule("demo.example", &["entities", "entities/status", "planets"], &["list", "watch"]),
            policy_rule("", &["nodes"], &["list"]),
        ],
        cluster: vec![named_policy_rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"], ["a"])],
        own_namespace: vec![named_policy_rule("", &["secrets"], &["get", "patch"], ["pair"])],
        leader_election: Vec::new(),
    }
}

/// Kind, namespace, name, and what each rule is about.
fn summary(account: &Account) -> Vec<(String, Value, Value, Value)> {
    let manifests = access().manifests(account, |group, plural| (group, plural) == ("demo.example", "planets"));
    let resources = |manifest: &Value| -> Value {
        let rules = manifest["rules"].as_array().into_iter().flatten();
        rules.flat_map(|rule| rule["resources"].as_array().unwrap().clone()).collect()
    };
    let roles = manifests.iter().filter(|manifest| manifest.get("rules").is_some());
    roles
        .map(|manifest| {
            let metadata = &manifest["metadata"];
            let kind = manifest["kind"].as_str().unwrap().to_owned();
            (kind, metadata["namespace"].clone(), metadata["name"].clone(), resources(manifest))
        })
        .collect()
}

#[test]
fn rights_are_split_into_a_cluster_role_and_a_role() {
    let manifests = access().manifests(&account(None), |_, _| false);
    let kinds: Vec<_> = manifests.iter().map(|manifest| manifest["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
    assert_eq!(manifests[3]["rules"][0]["resourceNames"], json!(["pair"]));
    assert_eq!(manifests[3]["metadata"]["namespace"], "demo");
    for binding in [&manifests[2], &manifests[4]] {
        assert_eq!(binding["subjects"], json!([{ "kind": "ServiceAccount", "name": "op", "namespace": "demo" }]));
        assert_eq!(binding["roleRef"]["name"], "op");
    }
}

// D6
#[test]
fn a_restricted_operator_has_a_role_and_cluster_scoped_rights() {
    let everywhere = (
        "ClusterRole".to_owned(),
        Value::Null,
        json!("op-team"),
        json!(["planets", "nodes", "customresourcedefinitions"]),
    );
    let own = ("Role".to_owned(), json!("demo"), json!("op"), json!(["secrets"]));
    let watched = ("Role".to_owned(), json!("team"), json!("op"), json!(["entities", "entities/status"]));
    assert_eq!(summary(&account(Some("team"))), [everywhere, own, watched]);
}

#[test]
fn one_that_lives_where_it_is_restricted_to_has_one_role_there() {
    let roles = summary(&account(Some("demo")));
    assert_eq!(roles.len(), 2, "{roles:?}");
    assert_eq!(roles[1].3, json!(["entities", "entities/status", "secrets"]));
}

#[test]
fn a_union_has_each_granted_right_once_and_no_other() {
    let rule = |verbs: &[&str]| policy_rule("", &["secrets"], verbs);
    let (mine, both) = (Access::from([rule(&["list", "watch"])]), rule(&["get", "watch"]));
    let named = named_policy_rule("", &["secrets"], &["get", "watch"], ["pair"]);
    let union = mine.merge([both.clone(), named.clone()]);
    assert_eq!(union.watched, [rule(&["get", "list", "watch"]), named]);
    let elsewhere = union.clone().merge(Access::default().with_own_namespace([both.clone()]));
    assert_eq!((elsewhere.watched, elsewhere.own_namespace), (union.watched, vec![both]));
}

// O5: it can be read in two minutes.
#[test]
fn resources_of_a_group_with_equal_verbs_are_one_rule() {
    let one = [policy_rule("apps", &["deployments"], &["list", "watch"]), policy_rule("", &["pods"], &["list"])];
    let two = [
        policy_rule("apps", &["statefulsets", "deployments"], &["patch"]),
        policy_rule("apps", &["statefulsets"], &["watch", "list"]),
    ];
    let verbs = ["list", "watch", "patch"];
    let expected =
        [policy_rule("apps", &["deployments", "statefulsets"], &verbs), policy_rule("", &["pods"], &["list"])];
    assert_eq!(Access::from(one).merge(two).watched, expected);
}

#[test]
fn a_rule_of_two_groups_or_of_urls_is_granted_whole() {
    let two = PolicyRule { api_groups: Some(vec!["a".into(), "b".into()]), ..policy_rule("", &["x"], &["get"]) };
    let urls = PolicyRule { non_resource_urls: Some(vec!["/livez".into()]), ..PolicyRule::default() };
    let access = Access::from([two, urls.clone()]).merge(Access::default());
    assert_eq!(access.watched, [policy_rule("a", &["x"], &["get"]), policy_rule("b", &["x"], &["get"]), urls]);
    // A Role cannot grant URLs: they stay in the ClusterRole.
    let manifests = access.manifests(&account(Some("team")), |_, _| false);
    assert_eq!(manifests[1]["rules"][0]["nonResourceURLs"], json!(["/livez"]));
    assert_eq!(manifests[3]["rules"].as_array().unwrap().len(), 2);
}

#[test]
fn a_role_without_rules_is_not_there() {
    let manifests = Access::default().manifests(&account(Some("team")), |_, _| false);
    assert_eq!(manifests.len(), 1, "{manifests:?}");
}
