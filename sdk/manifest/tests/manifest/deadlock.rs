//! Webhooks that could lock a cluster: corrected where that is possible, refused with the fix where it is not.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use portcullis_manifest::{FailurePolicy, MatchCondition, Operation, Rule, ScopeType, Webhook, WebhookKind};

const OWN: &str = "demo";

fn rule(group: &str, resource: &str) -> Rule {
    Rule {
        groups: vec![group.into()],
        versions: vec!["v1".into()],
        resources: vec![resource.into()],
        scope: ScopeType::Any,
        operations: vec![Operation::Create, Operation::Update],
    }
}

fn webhook(rules: Vec<Rule>) -> Webhook {
    Webhook::new("a.things.demo.example", WebhookKind::Validating, "/a", rules)
}

/// The namespaces that the webhook leaves alone, as its selector says.
fn left_alone(webhook: &Webhook) -> Vec<String> {
    let expressions =
        webhook.namespace_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    let mut found = expressions.filter(|expression| expression.operator == "NotIn");
    found.next().and_then(|expression| expression.values.clone()).unwrap_or_default()
}

fn selects(namespaces: &[&str]) -> LabelSelector {
    let requirement = LabelSelectorRequirement {
        key: "kubernetes.io/metadata.name".into(),
        operator: "In".into(),
        values: Some(namespaces.iter().map(|name| (*name).to_owned()).collect()),
    };
    LabelSelector { match_labels: None, match_expressions: Some(vec![requirement]) }
}

// Issues 7 and 21: the operator's own Pods, ConfigMaps, Secrets and Leases, and those of the cluster's network.
#[test]
fn kinds_that_pods_need_are_exempt_in_system_namespaces() {
    let system: &[&str] = &[OWN, "kube-system"];
    let leases: &[&str] = &[OWN, "kube-system", "kube-node-lease"];
    let cases: [(&str, &str, &[&str]); 22] = [
        ("", "pods", system),
        ("", "pods/binding", system),
        ("", "secrets", system),
        ("", "configmaps", system),
        ("", "serviceaccounts/token", system),
        ("", "endpoints", system),
        ("apps", "deployments", system),
        ("apps", "replicasets", system),
        ("apps", "daemonsets", system),
        ("apps", "*", system),
        ("discovery.k8s.io", "endpointslices", system),
        ("coordination.k8s.io", "leases", leases),
        ("coordination.k8s.io", "*/*", leases),
        ("", "pods/eviction", system),
        ("apps", "controllerrevisions", system),
        ("rbac.authorization.k8s.io", "rolebindings", system),
        ("cert-manager.io", "certificates/status", &[OWN]),
        ("acme.cert-manager.io", "orders", &[OWN]),
        ("not-cert-manager.io", "orders", &[]),
        ("batch", "jobs", &[OWN]),
        ("", "namespaces", &[OWN]),
        ("demo.example", "*", &[]),
    ];
    for (group, resource, expected) in cases {
        let guarded = webhook(vec![rule(group, resource)]).prevent_deadlock(OWN).unwrap();
        assert_eq!(left_alone(&guarded), expected, "{group}/{resource}");
        let mut ignoring = webhook(vec![rule(group, resource)]);
        ignoring.failure_policy = FailurePolicy::Ignore;
        assert_eq!(
            left_alone(&ignoring.prevent_deadlock(OWN).unwrap()),
            [""; 0],
            "who goes on without it is not held up"
        );
    }
    // Everything that lives in a namespace.
    let mut broad = rule("*", "*");
    broad.scope = ScopeType::Namespaced;
    assert_eq!(left_alone(&webhook(vec![broad]).prevent_deadlock(OWN).unwrap()), leases);
    // An operator that lives there itself.
    assert_eq!(left_alone(&webhook(vec![rule("", "pods")]).prevent_deadlock("kube-system").unwrap()), ["kube-system"]);
}

// Issue 21: what no selector of namespaces can leave out.
#[test]
fn a_webhook_that_would_lock_the_cluster_is_refused() {
    let named =
        "let it ignore failures (FailurePolicy::Ignore), or narrow it by a match condition or an object selector";
    let broad = "name its resources, or say that they are namespaced (ScopeType::Namespaced), or let it ignore failures \
                 (FailurePolicy::Ignore)";
    let cases = [
        (
            rule("", "nodes"),
            "its rule names nodes: while the operator is away, no node could join the cluster or say that it lives",
            named,
        ),
        (
            rule("", "nodes/status"),
            "its rule names nodes: while the operator is away, no node could join the cluster or say that it lives",
            named,
        ),
        (
            rule("authentication.k8s.io", "tokenreviews"),
            "its rule names tokenreviews.authentication.k8s.io: while the operator is away, nobody could prove to a kubelet or an API server who they are",
            named,
        ),
        (
            rule("authorization.k8s.io", "subjectaccessreviews"),
            "its rule names subjectaccessreviews.authorization.k8s.io: while the operator is away, nobody could be given what their rights allow",
            named,
        ),
        (
            rule("certificates.k8s.io", "certificatesigningrequests"),
            "its rule names certificatesigningrequests.certificates.k8s.io: while the operator is away, no kubelet could get or renew its certificate",
            named,
        ),
        (
            rule("apiextensions.k8s.io", "customresourcedefinitions"),
            "its rule names customresourcedefinitions.apiextensions.k8s.io: while the operator is away, the operator could not publish its own CA in a CRD",
            named,
        ),
        (
            rule("rbac.authorization.k8s.io", "clusterrolebindings"),
            "its rule names clusterrolebindings.rbac.authorization.k8s.io: while the operator is away, the operator could not get its own rights back",
            named,
        ),
        (
            rule("rbac.authorization.k8s.io", "clusterroles"),
            "its rule names clusterroles.rbac.authorization.k8s.io: while the operator is away, no API server could start: it brings its own up to date first",
            named,
        ),
        (
            rule("scheduling.k8s.io", "priorityclasses"),
            "its rule names priorityclasses.scheduling.k8s.io: while the operator is away, no API server could start: it brings its own up to date first",
            named,
        ),
        (
            rule("apiregistration.k8s.io", "apiservices/status"),
            "its rule names apiservices.apiregistration.k8s.io: while the operator is away, no API server could become ready: it registers its own first",
            named,
        ),
        (
            rule("flowcontrol.apiserver.k8s.io", "flowschemas"),
            "its rule names flowschemas.flowcontrol.apiserver.k8s.io: while the operator is away, no API server could become ready: it brings its own up to date first",
            named,
        ),
        (
            rule("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
            "its rule names prioritylevelconfigurations.flowcontrol.apiserver.k8s.io: while the operator is away, no API server could become ready: it brings its own up to date first",
            named,
        ),
        (
            rule("storage.k8s.io", "csinodes"),
            "its rule names csinodes.storage.k8s.io: while the operator is away, no kubelet could start",
            named,
        ),
        (
            rule("*", "*"),
            "its rule for all resources reaches nodes: while the operator is away, no node could join the cluster or say that it lives",
            broad,
        ),
        (
            rule("", "*/*"),
            "its rule for all resources reaches nodes: while the operator is away, no node could join the cluster or say that it lives",
            broad,
        ),
        (
            rule("authentication.k8s.io", "*"),
            "its rule for all resources reaches tokenreviews.authentication.k8s.io: while the operator is away, nobody could prove to a kubelet or an API server who they are",
            broad,
        ),
    ];
    for (rule, reach, fix) in cases {
        let refused = webhook(vec![rule.clone()]).prevent_deadlock(OWN).unwrap_err();
        let expected =
            format!("webhook a.things.demo.example could lock the cluster: it fails closed and {reach}; {fix}");
        assert_eq!(refused.to_string(), expected);
        // Each way out that the sentence names is one.
        let mut ignoring = webhook(vec![rule.clone()]);
        ignoring.failure_policy = FailurePolicy::Ignore;
        ignoring.prevent_deadlock(OWN).unwrap();
        let mut conditional = webhook(vec![rule.clone()]);
        conditional.match_conditions = vec![MatchCondition { name: "mine".into(), expression: "false".into() }];
        assert_eq!(conditional.prevent_deadlock(OWN).is_ok(), fix == named, "{rule:?}");
        let mut labelled = webhook(vec![rule.clone()]);
        let labels = [("mine".to_owned(), "yes".to_owned())].into();
        labelled.object_selector = Some(LabelSelector { match_labels: Some(labels), match_expressions: None });
        assert_eq!(labelled.prevent_deadlock(OWN).is_ok(), fix == named, "{rule:?}");
        let mut namespaced = rule.clone();
        namespaced.scope = ScopeType::Namespaced;
        webhook(vec![namespaced]).prevent_deadlock(OWN).unwrap();
        // A webhook on deletions keeps nothing from starting, and a selector that selects everything narrows nothing.
        let mut deleted = rule.clone();
        deleted.operations = vec![Operation::Delete, Operation::Connect];
        webhook(vec![deleted]).prevent_deadlock(OWN).unwrap();
        let mut everything = webhook(vec![rule]);
        everything.object_selector = Some(LabelSelector::default());
        everything.prevent_deadlock(OWN).unwrap_err();
    }
}

#[test]
fn a_selector_that_asks_for_what_must_be_left_alone_is_refused() {
    let cases: [(&[&str], Option<&str>); 4] = [
        (&[OWN], Some("demo")),
        (&["kube-system", OWN], Some("kube-system, demo")),
        (&["team"], None),
        (&["team", OWN], None),
    ];
    for (namespaces, refused) in cases {
        let mut pods = webhook(vec![rule("", "pods")]);
        pods.namespace_selector = Some(selects(namespaces));
        let said = pods.prevent_deadlock(OWN).err().map(|error| error.to_string());
        let expected = refused.map(|names| {
            format!(
                "webhook a.things.demo.example could lock the cluster: it fails closed and selects namespace {names}, which it \
                 has to leave alone; let it ignore failures (FailurePolicy::Ignore), or let the operator live elsewhere than \
                 what it guards"
            )
        });
        assert_eq!(said, expected);
    }
}

// D6
#[test]
fn a_restricted_webhook_selects_one_namespace() {
    let mut hook = webhook(vec![
        rule("demo.example", "entities"),
        Rule { scope: ScopeType::Cluster, ..rule("demo.example", "planets") },
    ]);
    hook.namespace_selector = Some(selects(&["other"]));
    let restricted = hook.restrict_to_namespace("team").unwrap();
    let labels = [("kubernetes.io/metadata.name".to_owned(), "team".to_owned())].into();
    let expected = LabelSelector { match_labels: Some(labels), match_expressions: None };
    assert_eq!(restricted.namespace_selector, Some(expected));
    assert_eq!(restricted.rules.len(), 1, "what lives in no namespace is another's business");
    assert_eq!(restricted.rules[0].scope, ScopeType::Namespaced);
    // Pods in its own namespace: that cannot be corrected.
    webhook(vec![rule("", "pods")]).restrict_to_namespace(OWN).unwrap().prevent_deadlock(OWN).unwrap_err();
    webhook(vec![rule("", "pods")]).restrict_to_namespace("team").unwrap().prevent_deadlock(OWN).unwrap();
    let cluster = Rule { scope: ScopeType::Cluster, ..rule("demo.example", "planets") };
    assert_eq!(webhook(vec![cluster]).restrict_to_namespace("team"), None);
}
