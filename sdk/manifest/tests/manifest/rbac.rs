//! Rights: what is everywhere, what is in one namespace, and what becomes of it when the operator is restricted to one.

use portcullis_manifest::{Access, Account, Grant};
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
            Grant::new("demo.example", &["entities", "entities/status", "planets"], &["list", "watch"]),
            Grant::new("", &["nodes"], &["list"]),
        ],
        cluster: vec![Grant::new("apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"]).named(["a"])],
        own_namespace: vec![Grant::new("", &["secrets"], &["get", "patch"]).named(["pair"])],
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
    let grant = |verbs: &[&'static str]| Grant::new("", &["secrets"], verbs);
    let (mine, both) = (Access::from([grant(&["list", "watch"])]), grant(&["get", "watch"]));
    let union = mine.and([both.clone(), both.clone().named(["pair"])]);
    assert_eq!(union.watched, [grant(&["get", "list", "watch"]), both.clone().named(["pair"])]);
    let elsewhere = union.clone().and(Access::default().in_own_namespace([both.clone()]));
    assert_eq!((elsewhere.watched, elsewhere.own_namespace), (union.watched, vec![both]));
}

// O5: it can be read in two minutes.
#[test]
fn resources_of_a_group_with_equal_verbs_are_one_rule() {
    let grant = |group: &str, resources: &[&str], verbs: &[&'static str]| Grant::new(group, resources, verbs);
    let one = [grant("apps", &["deployments"], &["list", "watch"]), grant("", &["pods"], &["list"])];
    let two = [
        grant("apps", &["statefulsets", "deployments"], &["patch"]),
        grant("apps", &["statefulsets"], &["watch", "list"]),
    ];
    let expected =
        [grant("apps", &["deployments", "statefulsets"], &["list", "watch", "patch"]), grant("", &["pods"], &["list"])];
    assert_eq!(Access::from(one).and(two).watched, expected);
}

#[test]
fn a_role_without_rules_is_not_there() {
    let manifests = Access::default().manifests(&account(Some("team")), |_, _| false);
    assert_eq!(manifests.len(), 1, "{manifests:?}");
}
