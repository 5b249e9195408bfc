//! Registrations, validators and edits, without a network.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::CustomResource;
use portcullis::webhooks::{
    Context, FailurePolicy, Mutate, Mutation, RegistrationError, Routes, Validate, Verdict, Webhooks,
};
use portcullis_manifest::{ScopeType, WebhookKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fixture::{Entity, entity, review};

pub(crate) async fn ask(routes: &Routes, path: &str, review: &Value) -> (StatusCode, Value) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(review.to_string())))
        .unwrap();
    let (head, body) = routes.respond(request).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)));
    (head.status, body)
}

/// K4
#[test]
fn the_manifest_says_what_was_registered() {
    let yes = |_: Arc<Node>, _: Context| async { Verdict::allow() };
    let webhooks = Webhooks::new()
        .validate(
            Validate::<Node>::new("nodes")
                .on_delete(yes)
                .on_create(yes)
                .failure_policy(FailurePolicy::Ignore)
                .timeout(Duration::from_secs(3))
                .match_condition("a", "true"),
        )
        .mutate(Mutate::<Entity>::new("nodes").on_create(|new: Entity, _: Context| async { Mutation::modified(new) }));
    let manifests = webhooks.manifests().unwrap();

    let nodes = &manifests[0];
    assert_eq!((nodes.name.as_str(), nodes.kind), ("nodes.nodes.core", WebhookKind::Validating));
    assert_eq!((nodes.path.as_str(), nodes.timeout_seconds), ("/validate/nodes", 3));
    assert_eq!((nodes.failure_policy, nodes.match_conditions.len()), (FailurePolicy::Ignore, 1));
    let rule = &nodes.rules[0];
    assert_eq!((rule.scope, rule.groups[0].as_str(), rule.resources[0].as_str()), (ScopeType::Cluster, "", "nodes"));
    assert_eq!(rule.operations.iter().map(ToString::to_string).collect::<Vec<_>>(), ["CREATE", "DELETE"]);

    let entities = &manifests[1];
    assert_eq!((entities.name.as_str(), entities.path.as_str()), ("nodes.entities.demo.example", "/mutate/nodes"));
    assert_eq!((entities.kind, entities.rules[0].scope), (WebhookKind::Mutating, ScopeType::Namespaced));
    assert_eq!((entities.failure_policy, entities.timeout_seconds), (FailurePolicy::Fail, 10));

    assert_eq!(webhooks.routes().unwrap().paths(), ["/mutate/nodes", "/validate/nodes"]);
}

#[test]
fn a_registration_that_the_api_server_would_refuse_fails() {
    let named = |name: &str| {
        Validate::<ConfigMap>::new(name).on_create(|_: Arc<ConfigMap>, _: Context| async { Verdict::allow() })
    };
    let cases: [(&str, Webhooks); 10] = [
        ("webhook name \"Upper\" is not a DNS label", Webhooks::new().validate(named("Upper"))),
        ("webhook name \"a.b\" is not a DNS label", Webhooks::new().validate(named("a.b"))),
        ("webhook name \"\" is not a DNS label", Webhooks::new().validate(named(""))),
        ("served at /validate/a", Webhooks::new().validate(named("a")).validate(named("a"))),
        ("path \"p\" of webhook a must begin with '/'", Webhooks::new().validate(named("a").path("p"))),
        ("timeout of webhook a must be 1 to 30", Webhooks::new().validate(named("a").timeout(Duration::from_secs(31)))),
        ("timeout of webhook a", Webhooks::new().validate(named("a").timeout(Duration::from_millis(1500)))),
        (
            "webhook a has two match conditions named \"x\"",
            Webhooks::new().validate(named("a").match_condition("x", "true").match_condition("x", "false")),
        ),
        (
            "two match conditions named \"portcullis.dev/exclude-finalizer-removal\"",
            Webhooks::new().validate(
                named("a")
                    .on_update(|_: Arc<ConfigMap>, _, _: Context| async { Verdict::allow() })
                    .match_condition("portcullis.dev/exclude-finalizer-removal", "true"),
            ),
        ),
        ("webhook a has no handler", Webhooks::new().validate(Validate::<ConfigMap>::new("a"))),
    ];
    for (said, webhooks) in cases {
        let error: RegistrationError = webhooks.manifests().unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert!(webhooks.routes().is_err(), "what cannot be registered is not served");
    }
    for (updates, given, taken) in [(true, 63, true), (true, 64, false), (false, 64, true), (false, 65, false)] {
        let mut webhook = named("a");
        if updates {
            webhook = webhook.on_update(|_: Arc<ConfigMap>, _, _: Context| async { Verdict::allow() });
        }
        for index in 0..given {
            webhook = webhook.match_condition(format!("c{index}"), "true");
        }
        let refused = Webhooks::new().validate(webhook).manifests().map_err(|error| error.to_string()).err();
        let said =
            format!("webhook a has {given} match conditions: at most {} are allowed", if updates { 63 } else { 64 });
        assert_eq!(refused.is_none(), taken, "{given}");
        assert!(refused.is_none_or(|refused| refused.starts_with(&said)), "{said}");
    }
    // As the API server has it.
    for (path, taken) in [
        ("", false),
        ("/", true),
        ("//", false),
        ("/a", true),
        ("/a/", true),
        ("/a//b", false),
        ("/a/b.c-d/1", true),
        ("/A", false),
        ("/a_b", false),
        ("/ä", false),
        ("/a/../b", false),
        ("/-a", false),
        ("/a-", false),
        ("/a?b", false),
        ("/a#b", false),
        ("/a b", false),
        ("/a%20b", false),
        ("/a\n", false),
        ("/a/.", false),
    ] {
        assert_eq!(Webhooks::new().validate(named("a").path(path)).manifests().is_ok(), taken, "{path:?}");
    }
}

/// A very large limit is as good as none, and must not panic.
#[tokio::test]
async fn limits_of_any_size_are_served() {
    for concurrency in [1, usize::MAX] {
        let judge = Validate::<Entity>::new("a").on_create(|_, _| async { Verdict::allow() }).concurrency(concurrency);
        let routes = Webhooks::new().validate(judge).routes().unwrap();
        let (status, answer) =
            ask(&routes, "/validate/a", &review("CREATE", entity(json!({"username": "a"})), Value::Null)).await;
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    }
}

/// A type that writes under another name than it may have read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "demo.example", version = "v1", kind = "Renamed", plural = "renameds")]
struct RenamedSpec {
    #[serde(alias = "login")]
    username: String,
}

#[tokio::test]
async fn an_edit_that_its_own_type_cannot_read_back_is_never_sent() {
    let routes = Webhooks::new()
        .mutate(Mutate::<Renamed>::new("rename").on_create(|mut new: Renamed, _: Context| async move {
            new.spec.username = "edited".into();
            Mutation::modified(new)
        }))
        .routes()
        .unwrap();
    for (member, status) in [("username", 200), ("login", 500)] {
        let object = json!({"apiVersion": "demo.example/v1", "kind": "Renamed", "metadata": {"name": "one"}, "spec": {member: "a"}});
        let mut review = review("CREATE", object, Value::Null);
        review["request"]["kind"]["kind"] = json!("Renamed");
        let (got, answer) = ask(&routes, "/mutate/rename", &review).await;
        assert_eq!(got, status, "{answer}");
    }
}
