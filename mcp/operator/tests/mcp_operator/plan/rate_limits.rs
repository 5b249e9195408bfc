//! `spec.rateLimiting`: a guard in the spec of a server, counted in the Redis of its `spec.sessionStorage`.

use mcp_operator::subject::Subject as _;
use mcp_plan::{settings::DefaultRedis, workload::ChildKind};
use serde_json::{Value, json};

use super::world::{World, checksum, condition, guards, inline, is_absent, oidc_config, run_config};

const FAIL_CLOSED: &str = "portcullis.dev/rate-limits-fail-closed";

/// A server with these limits, and these members in its spec besides.
fn server(limits: Value, more: Value) -> World {
    let mut spec = json!({
        "image": "x:1", "transport": "streamable-http", "rateLimiting": limits,
        "sessionStorage": {"provider": "redis", "address": "redis:6379"},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    World::of(spec)
}

fn bucket(tokens: i32, period: &str) -> Value {
    json!({"maxTokens": tokens, "refillPeriod": period})
}

fn shared(tokens: i32) -> Value {
    json!({"shared": bucket(tokens, "1m")})
}

fn document(world: &World) -> Value {
    serde_json::from_str(run_config(&world.plan())).unwrap()
}

#[test]
fn limits_reach_the_document_with_gos_durations_and_the_chain_where_upstream_has_them() {
    let limits = json!({
        "shared": bucket(10, "60s"),
        "tools": [{"name": "b", "shared": bucket(1, "0.5s")}, {"name": "a", "shared": bucket(2, "90m")}],
    });
    let world = server(
        limits,
        json!({"authzConfig": {"type": "inline", "inline": {"policies": ["permit(principal, action, resource);"]}}}),
    );
    let document = document(&world);
    let expected = json!({
        "shared": bucket(10, "1m0s"),
        "tools": [{"name": "b", "shared": bucket(1, "500ms")}, {"name": "a", "shared": bucket(2, "1h30m0s")}],
    });
    assert_eq!((&document["rate_limit_config"], &document["rate_limit_namespace"]), (&expected, &json!("team")));
    let chain = document["middleware_configs"].as_array().unwrap();
    let kinds: Vec<_> = chain.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["bodylimit", "auth", "mcp-parser", "ratelimit", "authorization", "recovery"]);
    let parameters = &chain[3]["parameters"];
    assert_eq!(
        (&parameters["namespace"], &parameters["server_name"], &parameters["config"]),
        (&json!("team"), &json!("fetch"), &expected)
    );
    let (reason, message) = condition(&world.plan(), "RateLimitConfigValid", "True").unwrap();
    assert_eq!((&*reason, &*message), ("RateLimitConfigValid", "spec.rateLimiting is valid"));
    assert_eq!(condition(&World::of(json!({"image": "x:1"})).plan(), "RateLimitConfigValid", "True"), None);
}

#[test]
fn calls_are_counted_in_the_redis_of_the_spec_and_in_no_other() {
    let ca = json!({"name": "ca", "key": "root.pem"});
    for transport in ["streamable-http", "sse", "stdio"] {
        let storage = json!({
            "provider": "redis", "address": "redis:6379", "db": 3, "keyPrefix": "mine:",
            "passwordRef": {"name": "redis", "key": "password"}, "tls": {"caCertSecretRef": ca},
        });
        let mut world = server(shared(5), json!({"transport": transport, "sessionStorage": storage}));
        let plan = world.plan();
        let (_, message) = condition(&plan, "SessionStorageReady", "False").unwrap();
        assert!(plan.children.is_empty() && message.contains("Secret"), "{transport}: {message}");
        world.secret("redis", "password", "hunter2");
        world.secret("ca", "root.pem", &super::pem::authority());
        let document = document(&world);
        let chain = document["middleware_configs"].as_array().unwrap();
        let limit = chain.iter().find(|entry| entry["type"] == "ratelimit").unwrap();
        let (redis, own) = (&document["scaling_config"]["session_redis"], &limit["parameters"]);
        assert_eq!((&own["redis_addr"], &own["redis_db"]), (&json!("redis:6379"), &json!(3)), "{transport}");
        assert!(own["redis_tls"]["caCertFile"].is_string() && own["redis_tls"] == redis["tls"], "{transport}: {own}");
    }
    let mut inherits = server(shared(5), json!({"sessionStorage": null}));
    inherits.settings.default_redis =
        Some(DefaultRedis { address: "default:6379".to_owned(), ..DefaultRedis::default() });
    let (reason, _) = condition(&inherits.plan(), "RateLimitConfigValid", "False").unwrap();
    assert!(reason == "RateLimitConfigInvalid" && inherits.plan().children.is_empty());
}

/// The manifest of docs/src/how-to/rate-limits.md.
#[test]
fn the_manifest_of_the_book_has_limits() {
    let page = include_str!("../../../../../docs/src/how-to/rate-limits.md");
    let manifest = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
    let mut world = World::of(manifest["spec"].clone());
    world.has(oidc_config("company", inline(json!({}))));
    world.secret("redis", "password", "hunter2");
    assert_eq!(world.workload.problems(), []);
    let limits = &document(&world)["rate_limit_config"];
    assert_eq!(limits["tools"], json!([{"name": "forecast", "perUser": bucket(5, "1h0m0s")}]));
    assert_eq!((&limits["shared"], &limits["perUser"]), (&bucket(1000, "1m0s"), &bucket(60, "1m0s")));
}

#[test]
fn limits_that_cannot_be_kept_get_no_proxy_and_say_why() {
    let (invalid, nobody) = ("RateLimitConfigInvalid", "PerUserRequiresAuth");
    let of_tool = json!({"tools": [{"name": "a", "perUser": bucket(1, "1s")}]});
    for (limits, more, reason, message) in [
        (shared(1), json!({"sessionStorage": null}), invalid, "needs spec.sessionStorage with the provider redis"),
        (shared(1), json!({"sessionStorage": {"provider": "memory"}}), invalid, "the provider redis"),
        (shared(0), json!({}), invalid, "spec.rateLimiting.shared.maxTokens: is less than 1"),
        (json!({"shared": bucket(1, "soon")}), json!({}), invalid, "spec.rateLimiting.shared.refillPeriod: \"soon\""),
        (json!({"shared": bucket(1, "-1s")}), json!({}), invalid, "is no period of at most a century"),
        (json!({"shared": bucket(1, "2000000h")}), json!({}), invalid, "is no period of at most a century"),
        (json!({"perUser": bucket(1, "1s")}), json!({}), nobody, "spec.rateLimiting.perUser: needs callers who log in"),
        (of_tool, json!({}), nobody, "spec.rateLimiting.tools[0].perUser: needs callers who log in"),
    ] {
        let world = server(limits.clone(), more);
        let plan = world.plan();
        let (found, text) = condition(&plan, "RateLimitConfigValid", "False").unwrap();
        assert!(found == reason && text.contains(message), "{limits}: {found}: {text}");
        assert!(plan.children.is_empty() && plan.status.phase.unwrap().as_str() == "Failed", "{limits}");
    }
    let login = World::login();
    let mut with_login = server(json!({"perUser": bucket(1, "1s")}), json!({}));
    with_login.workload.spec.oidc_config_ref = login.workload.spec.oidc_config_ref;
    with_login.has(oidc_config("idp", inline(json!({}))));
    assert!(condition(&with_login.plan(), "RateLimitConfigValid", "True").is_some());
}

#[test]
fn limits_are_a_guard() {
    let mut world = server(shared(5), json!({}));
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    let first = world.plan();
    assert!(guards(&first).as_str().unwrap().contains("inline/spec.rateLimiting/"), "{}", guards(&first));
    let (_, message) = condition(&first, "GuardsEnforced", "True").unwrap();
    assert!(message.contains("spec.rateLimiting"), "{message}");

    let mut changed = world.clone();
    changed.workload.spec.rate_limiting = server(shared(6), json!({})).workload.spec.rate_limiting;
    let plan = changed.plan();
    assert_eq!(condition(&plan, "GuardsEnforced", "False").unwrap().0, "PolicyOutdated");
    assert!(checksum(&plan) != checksum(&first) && !is_absent(&plan, ChildKind::Deployment, "fetch"), "it rolls");

    let mut without = server(json!(null), json!({}));
    without.applied(&without.plan());
    without.workload.spec.rate_limiting = world.workload.spec.rate_limiting;
    assert!(is_absent(&without.plan(), ChildKind::Deployment, "fetch"), "a proxy without limits goes first");

    changed.settings.runner_middleware.retain(|ability| ability != "ratelimit");
    let (reason, message) = condition(&changed.plan(), "GuardsEnforced", "False").unwrap();
    assert!(reason == "GuardNotBuilt" && message.starts_with("spec.rateLimiting cannot"), "{reason}: {message}");
}

#[test]
fn an_annotation_has_calls_refused_that_cannot_be_counted() {
    for (word, closed) in [("true", true), ("false", false), ("yes", true)] {
        let mut world = server(shared(5), json!({}));
        world.workload.metadata.annotations = Some([(FAIL_CLOSED.to_owned(), word.to_owned())].into());
        let problems = world.workload.problems();
        assert_eq!(problems.is_empty(), word != "yes", "{problems:?}");
        if word != "yes" {
            let expected = if closed { json!({"rate_limits_fail_closed": true}) } else { Value::Null };
            assert_eq!(document(&world)["portcullis"], expected, "{word}");
        }
        assert_eq!(world.workload.warnings(&world.settings).iter().filter(|it| it.contains(FAIL_CLOSED)).count(), 0);
    }
    let mut without = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    without.workload.metadata.annotations = Some([(FAIL_CLOSED.to_owned(), "true".to_owned())].into());
    assert_eq!(document(&without)["portcullis"], Value::Null);
    let warnings = without.workload.warnings(&without.settings);
    assert!(warnings[0].contains(FAIL_CLOSED) && warnings[0].ends_with("there is no rate limit"), "{warnings:?}");
}

#[test]
fn stored_limits_are_judged_when_they_change() {
    let bad = server(json!({"shared": bucket(1, "soon")}), json!({})).workload;
    let good = server(shared(1), json!({})).workload;
    assert_eq!(bad.change_problems(Some(&bad)), []);
    for (old, new, count) in [(Some(&good), &bad, 1), (None, &bad, 1), (Some(&bad), &good, 0)] {
        assert_eq!(new.change_problems(old).len(), count);
    }
}
