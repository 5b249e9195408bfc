//! What a proxy may do at the Kubernetes API: attach to its own server, and nothing else.

use http::{Method, Request};
use k8s_openapi::{
    api::authorization::v1::{ResourceRule, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec},
    api::core::v1::Pod,
};
use kube::{Api, Client, api::PostParams};
use mcp_plan::workload::ChildKind;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, labelled},
};

/// The account of a server's proxy, in the groups that every account is in.
fn proxy_of(place: &Place, server: &str) -> Client {
    let namespace = place.namespace();
    let user = format!("system:serviceaccount:{namespace}:{server}-proxy-runner");
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
    place.cluster.client_as(&user, &groups)
}

/// What the API server says that a proxy may do in its namespace, beside asking what it may do.
async fn rules(client: &Client, namespace: &str) -> Vec<ResourceRule> {
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) },
        ..SelfSubjectRulesReview::default()
    };
    let status = Api::all(client.clone()).create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    assert!(!status.incomplete, "{status:?}");
    let own = |rule: &ResourceRule| {
        !rule.api_groups.iter().flatten().all(|group| group.starts_with("auth") && group.ends_with(".k8s.io"))
    };
    status.resource_rules.into_iter().filter(own).collect()
}

/// The status code of the answer.
async fn tried(client: &Client, method: Method, path: &str, body: &Value) -> u16 {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answer = client.send(request.body(body.to_string().into_bytes().into()).unwrap()).await.unwrap();
    answer.status().as_u16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_may_attach_to_its_own_server_and_create_nothing() {
    let place = Place::new("proxy-rights").await;
    let _operator = place.operator();
    let (objects, namespace) = (&place.objects, place.namespace());
    for (server, transport) in
        [("talks", "stdio"), ("other", "stdio"), ("listens", "streamable-http"), ("streams", "sse")]
    {
        objects.create(labelled(server, json!({"transport": transport}))).await;
    }
    for server in ["talks", "other"] {
        objects.child(ChildKind::RoleBinding, &format!("{server}-proxy-runner"), "its right", |_| true).await;
        let pods: Api<Pod> = objects.api();
        let pod = format!("{server}-0");
        wait_until("the server's pod", DEADLINE, || async { pods.get_opt(&pod).await.unwrap() }).await;
    }
    for server in ["listens", "streams"] {
        objects.child(ChildKind::Deployment, server, "its proxy", |_| true).await;
        assert_eq!(rules(&proxy_of(&place, server), namespace).await, [], "{server}");
    }
    let proxy = proxy_of(&place, "talks");
    let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
    let attach = ResourceRule {
        api_groups: names(&[""]),
        resources: names(&["pods/attach"]),
        resource_names: names(&["talks-0"]),
        verbs: vec!["get".to_owned(), "create".to_owned()],
    };
    assert_eq!(rules(&proxy, namespace).await, [attach]);

    let core = format!("/api/v1/namespaces/{namespace}");
    let apps = format!("/apis/apps/v1/namespaces/{namespace}");
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let kinds = format!("/apis/toolhive.stacklok.dev/v1beta1/namespaces/{namespace}");
    let attached = "attach?container=mcp&stdin=true&stdout=true";
    for (method, path) in [
        (Method::POST, format!("{core}/pods")),
        (Method::POST, format!("{core}/configmaps")),
        (Method::POST, format!("{core}/secrets")),
        (Method::POST, format!("{core}/services")),
        (Method::POST, format!("{core}/serviceaccounts")),
        (Method::POST, format!("{core}/serviceaccounts/talks-proxy-runner/token")),
        (Method::POST, format!("{core}/pods/talks-0/eviction")),
        (Method::POST, format!("{core}/pods/talks-0/exec?command=sh&stdout=true")),
        (Method::POST, format!("{core}/pods/talks-0/portforward")),
        (Method::GET, format!("{core}/pods/talks-0/exec?command=sh&stdout=true")),
        (Method::GET, format!("{core}/pods/talks-0/log")),
        (Method::GET, format!("{core}/pods/talks-0")),
        (Method::DELETE, format!("{core}/pods/talks-0")),
        (Method::POST, format!("{apps}/deployments")),
        (Method::POST, format!("{apps}/statefulsets")),
        (Method::POST, format!("/apis/batch/v1/namespaces/{namespace}/jobs")),
        (Method::POST, format!("{rbac}/roles")),
        (Method::POST, format!("{rbac}/rolebindings")),
        (Method::POST, format!("{kinds}/mcpservers")),
        (Method::GET, format!("{core}/secrets")),
        (Method::GET, format!("{core}/pods/other-0/{attached}")),
        (Method::POST, format!("{core}/pods/other-0/{attached}")),
    ] {
        assert_eq!(tried(&proxy, method.clone(), &path, &json!({})).await, 403, "{method} {path}");
    }
    // Its own: there is nothing to attach to on no node, which it would not be told without the right.
    for method in [Method::GET, Method::POST] {
        let answer = tried(&proxy, method.clone(), &format!("{core}/pods/talks-0/{attached}"), &json!({})).await;
        assert!(answer != 403 && answer >= 400, "{method}: {answer}");
    }
}
