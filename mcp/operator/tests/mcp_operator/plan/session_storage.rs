//! Where the proxies of a workload keep their sessions: `spec.sessionStorage`, and the operator's default Redis.

use mcp_api::v1beta1::{MCPRemoteProxy, SecretKeyRef};
use mcp_operator::{subject::Subject as _, workload::Workload};
use mcp_plan::settings::{DefaultRedis, Home};
use serde_json::{Value, json};

use super::pem;
use super::world::{Plan, World, condition, deployment, run_config};

const READY: &str = "SessionStorageReady";
const WARNING: &str = "SessionStorageWarning";

/// A server behind HTTP with these members in its spec.
fn server(members: Value) -> World {
    let mut spec = json!({"image": "x:1", "transport": "streamable-http"});
    spec.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    World::of(spec)
}

fn remote(members: Value) -> World<MCPRemoteProxy> {
    let mut spec = json!({"remoteUrl": "https://mcp.example.com/mcp"});
    spec.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    World::around(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPRemoteProxy",
        "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3}, "spec": spec,
    }))
}

fn redis(members: Value) -> Value {
    let mut storage = json!({"provider": "redis", "address": "redis:6379"});
    storage.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json!({"sessionStorage": storage})
}

/// A default with a password, TLS and authorities.
fn default_redis() -> DefaultRedis {
    let secret = |key: &str| Some(SecretKeyRef { key: key.to_owned(), name: "shared-redis".to_owned() });
    DefaultRedis {
        address: "shared.redis.svc:6379".to_owned(),
        password: secret("password"),
        tls: true,
        authorities: secret("ca.crt"),
    }
}

/// The same world under an operator with this default, whose Secret exists.
fn under<W: Workload<Status: Clone>>(mut world: World<W>, default: DefaultRedis) -> World<W> {
    world.settings.default_redis = Some(default);
    world.secret("shared-redis", "password", "hunter2");
    world.secret("shared-redis", "ca.crt", &pem::authority());
    world
}

fn document<W: Workload>(plan: &Plan<W>) -> Value {
    serde_json::from_str::<Value>(run_config(plan)).unwrap()["scaling_config"]["session_redis"].clone()
}

/// The variable of the proxy with the password.
fn password<W: Workload>(plan: &Plan<W>) -> Value {
    let container = &deployment(plan)["spec"]["template"]["spec"]["containers"][0];
    let mut variables = container["env"].as_array().unwrap().iter();
    let found = variables.find(|variable| variable["name"] == "THV_SESSION_REDIS_PASSWORD");
    found.map(|variable| variable["valueFrom"]["secretKeyRef"].clone()).unwrap_or_default()
}

/// The Secret with the authorities, and where they are mounted.
fn authorities<W: Workload>(plan: &Plan<W>) -> Option<(Value, Value)> {
    let pod = &deployment(plan)["spec"]["template"]["spec"];
    let named = |list: &Value| list.as_array().unwrap().iter().find(|it| it["name"] == "session-redis-tls-ca").cloned();
    let (volume, mount) = (named(&pod["volumes"])?, named(&pod["containers"][0]["volumeMounts"])?);
    Some((volume["secret"].clone(), mount["mountPath"].clone()))
}

#[test]
fn the_redis_of_a_spec_is_upstreams_member_variable_and_file() {
    let ca = json!({"name": "redis", "key": "root.pem"});
    let file = json!({"caCertFile": "/etc/toolhive/session-redis-tls/ca.crt"});
    for (members, expected) in [
        (json!({}), json!({"address": "redis:6379"})),
        (json!({"db": 2, "keyPrefix": "a:"}), json!({"address": "redis:6379", "db": 2, "key_prefix": "a:"})),
        (json!({"tls": {}}), json!({"address": "redis:6379", "tls": {}})),
        (
            json!({"tls": {"insecureSkipVerify": true}}),
            json!({"address": "redis:6379", "tls": {"insecureSkipVerify": true}}),
        ),
        (json!({"tls": {"caCertSecretRef": ca}}), json!({"address": "redis:6379", "tls": file})),
        (json!({"passwordRef": {"name": "redis", "key": "pw"}}), json!({"address": "redis:6379"})),
    ] {
        let (mut server, mut remote) = (server(redis(members.clone())), remote(redis(members.clone())));
        server.secret("redis", "root.pem", &pem::authority());
        server.secret("redis", "pw", "hunter2");
        remote.data = server.data.clone();
        let (server, remote) = (server.plan(), remote.plan());
        assert_eq!([document(&server), document(&remote)], [expected.clone(), expected], "{members}");
        let wanted = members.get("passwordRef").cloned().unwrap_or_default();
        assert_eq!([password(&server), password(&remote)], [wanted.clone(), wanted], "{members}");
        let file = members["tls"].get("caCertSecretRef").map(|_| {
            let items = json!([{"key": "root.pem", "path": "ca.crt"}]);
            (json!({"secretName": "redis", "items": items}), json!("/etc/toolhive/session-redis-tls"))
        });
        assert_eq!([authorities(&server), authorities(&remote)], [file.clone(), file], "{members}");
        let valid = ("SessionStorageValid".to_owned(), "spec.sessionStorage is valid".to_owned());
        assert_eq!(condition(&server, READY, "True"), Some(valid));
        assert_eq!(condition(&server, "UnsupportedFields", "True"), None);
    }
}

/// A stdio server has one process and one proxy. Its calls may be counted in Redis all the same.
#[test]
fn several_replicas_without_a_shared_store_are_warned_of() {
    let memory = json!({"provider": "memory"});
    for (spec, with_default, shared) in [
        (json!({"replicas": 2}), false, false),
        (json!({"replicas": 2}), true, true),
        (json!({"replicas": 2, "sessionStorage": memory}), true, false),
        (json!({"replicas": 2, "sessionStorage": redis(json!({}))["sessionStorage"]}), false, true),
        (json!({"replicas": 1}), false, true),
        (json!({}), false, true),
    ] {
        let (mut server, mut remote) = (server(spec.clone()), remote(spec.clone()));
        if with_default {
            (server, remote) = (under(server, default_redis()), under(remote, default_redis()));
        }
        let warned = |conditions: Option<(String, String)>| conditions.map(|(reason, _)| reason);
        let expected = (!shared).then(|| "SessionStorageMissingForReplicas".to_owned());
        assert_eq!(warned(condition(&server.plan(), WARNING, "True")), expected, "{spec} {with_default}");
        assert_eq!(warned(condition(&remote.plan(), WARNING, "True")), expected, "{spec} {with_default}");
        assert!(!server.plan().children.is_empty(), "a warning keeps nothing from being made");
    }
    let mut stdio = redis(json!({}));
    stdio["transport"] = json!("stdio");
    stdio["replicas"] = json!(2);
    let stdio = server(stdio);
    let plan = stdio.plan();
    assert_eq!(deployment(&plan)["spec"]["replicas"], 1);
    let (_, message) = condition(&plan, "StdioReplicaCapped", "True").unwrap();
    assert!(message.contains("one process") && condition(&plan, WARNING, "True").is_none(), "{message}");
    assert_eq!(document(&plan)["address"], "redis:6379", "its calls may be counted there");
    let warnings = stdio.workload.warnings(&stdio.settings);
    assert!(warnings.iter().any(|it| it.starts_with("spec.sessionStorage: the sessions of a stdio")), "{warnings:?}");
}

#[test]
fn the_replicas_of_an_autoscaler_are_warned_of_too() {
    let mut world = server(json!({}));
    world.applied(&world.plan());
    for (live, transport, shared, warned) in [
        (1, "streamable-http", false, false),
        (3, "streamable-http", false, true),
        (3, "streamable-http", true, false),
        (3, "stdio", false, false),
    ] {
        let members = if shared { redis(json!({})) } else { json!({}) };
        world.workload.spec = server(members).workload.spec;
        world.workload.spec.transport = serde_json::from_value(json!(transport)).unwrap();
        world.deployment.as_mut().unwrap().spec.as_mut().unwrap().replicas = Some(live);
        let said = condition(&world.plan(), WARNING, "True").map(|(_, message)| message);
        let expected = "the Deployment's number of replicas, which spec.replicas leaves to others, is more than 1 and sessions \
                        are not shared across replicas";
        assert_eq!(said.as_deref(), warned.then_some(expected), "{live} {transport} {shared}");
    }
}

#[test]
fn the_default_serves_those_that_name_no_store_and_no_stdio_server() {
    let file = json!({"caCertFile": "/etc/toolhive/session-redis-tls/ca.crt"});
    let inherited = json!({"address": "shared.redis.svc:6379", "tls": file});
    let stdio = json!({"transport": "stdio"});
    for (spec, expected) in [
        (json!({}), inherited.clone()),
        (json!({"replicas": 2}), inherited.clone()),
        (json!({"sessionStorage": {"provider": "memory"}}), Value::Null),
        (redis(json!({})), json!({"address": "redis:6379"})),
        (stdio, Value::Null),
    ] {
        let plan = under(server(spec.clone()), default_redis()).plan();
        assert_eq!(document(&plan), expected, "{spec}");
        let is_inherited = expected == inherited;
        assert_eq!(password(&plan).is_null(), !is_inherited, "{spec}");
        assert_eq!(authorities(&plan).is_some(), is_inherited, "{spec}");
        let said = condition(&plan, READY, "True").map(|(_, message)| message);
        assert_eq!(said.is_some_and(|it| it == "the operator's default Redis is valid"), is_inherited, "{spec}");
    }
    let plan = under(remote(json!({})), default_redis()).plan();
    assert_eq!(document(&plan), inherited);
    assert_eq!(password(&plan), json!({"name": "shared-redis", "key": "password"}));
    let open = DefaultRedis { address: "redis:6379".to_owned(), ..DefaultRedis::default() };
    let plan = under(server(json!({})), open).plan();
    assert_eq!((document(&plan), password(&plan)), (json!({"address": "redis:6379"}), Value::Null));
}

/// A new workload is not made, and what runs is left as it is.
#[test]
fn a_redis_that_cannot_be_used_is_said_and_takes_nothing_down() {
    let invalid = "SessionStorageInvalid";
    let default = |change: fn(&mut DefaultRedis)| {
        let mut default = default_redis();
        change(&mut default);
        Some(default)
    };
    for (members, default, reason, message) in [
        (
            redis(json!({"address": "redis"})),
            None,
            invalid,
            "spec.sessionStorage.address: \"redis\" is no host and port",
        ),
        (
            redis(json!({"keyPrefix": "mine"})),
            None,
            invalid,
            "spec.sessionStorage.keyPrefix: \"mine\" must end with a colon",
        ),
        (
            redis(json!({"passwordRef": {"name": "", "key": "k"}})),
            None,
            invalid,
            "spec.sessionStorage.passwordRef: names no",
        ),
        (
            redis(json!({"passwordRef": {"name": "absent", "key": "k"}})),
            None,
            "SessionStorageSecretNotFound",
            "spec.sessionStorage needs what does not exist: spec.sessionStorage.passwordRef: Secret \"absent\" does not exist",
        ),
        (
            redis(json!({"tls": {"caCertSecretRef": {"name": "shared-redis", "key": "password"}}})),
            Some(default_redis()),
            "SessionStorageSecretInvalid",
            "Secret shared-redis/password holds no PEM certificate",
        ),
        (
            json!({}),
            default(|it| it.address = "shared.redis.svc".to_owned()),
            invalid,
            "the operator's default Redis is not valid: --default-redis-address: \"shared.redis.svc\" is no host and port",
        ),
        (
            json!({}),
            default(|it| it.address = "redis://:hunter2@redis:6379".to_owned()),
            invalid,
            "--default-redis-address: the address, which is not shown as it may hold a password, is no host and port",
        ),
        (json!({}), default(|it| it.tls = false), invalid, "--default-redis-ca-secret: has no effect without TLS"),
        (
            json!({}),
            default(|it| it.password = Some(SecretKeyRef { key: "k".to_owned(), name: "absent".to_owned() })),
            "SessionStorageSecretNotFound",
            "the operator's default Redis needs what does not exist: --default-redis-secret: Secret \"absent\" does not exist",
        ),
    ] {
        let world = |members: Value| match &default {
            Some(default) => under(server(members), default.clone()),
            None => server(members),
        };
        let mut running = server(json!({}));
        running.applied(&running.plan());
        let new = world(members.clone());
        running.settings = new.settings.clone();
        running.data = new.data.clone();
        running.workload.spec = new.workload.spec.clone();
        for (world, runs) in [(new, false), (running, true)] {
            let plan = world.plan();
            let (found, said) = condition(&plan, READY, "False").unwrap();
            assert!(found == reason && said.contains(message), "{found}: {said}");
            assert!(plan.children.is_empty() && plan.absent.is_empty(), "{message}");
            assert_eq!(plan.status.phase.unwrap().as_str(), "Failed");
            assert_eq!(plan.status.message.unwrap().ends_with("what runs already is left as it is"), runs);
            assert!(plan.events.iter().any(|event| event.reason == reason), "{:?}", plan.events);
        }
    }
}

#[test]
fn a_changed_password_rolls_the_proxy() {
    let mut world = under(server(json!({})), default_redis());
    let annotation = |world: &World| {
        let plan = world.plan();
        deployment(&plan)["spec"]["template"]["metadata"]["annotations"]["toolhive.stacklok.dev/secrets-checksum"]
            .clone()
    };
    let before = annotation(&world);
    assert!(before.is_string());
    world.secret("shared-redis", "password", "hunter3");
    assert_ne!(annotation(&world), before);
}

/// Its author names the server that gets the password.
#[test]
fn no_workload_sends_the_operators_own_secrets_to_a_redis() {
    let members = redis(json!({"passwordRef": {"name": "op-digest", "key": "key"}}));
    let home = Home { namespace: "team".to_owned(), account: "op".to_owned(), secrets: vec!["op-digest".to_owned()] };
    let mut world = server(members);
    world.secret("op-digest", "key", "hunter2");
    assert!(!world.plan().children.is_empty());
    world.settings.home = Some(home);
    let plan = world.plan();
    let (_, message) = condition(&plan, "PodsAllowed", "False").unwrap();
    assert!(message.starts_with("spec.sessionStorage.passwordRef: ") && plan.children.is_empty(), "{message}");
}

#[test]
fn a_rule_that_came_after_stored_objects_counts_for_a_change_of_the_store_alone() {
    let bad = |members: Value| server(redis(members)).workload;
    let stored = bad(json!({"address": "redis"}));
    let fields = |old: Option<&mcp_api::v1beta1::MCPServer>, new: &mcp_api::v1beta1::MCPServer| -> Vec<String> {
        new.change_problems(old).into_iter().map(|problem| problem.field).collect()
    };
    assert_eq!(fields(None, &stored), ["spec.sessionStorage.address"]);
    assert_eq!(fields(Some(&stored), &stored), [""; 0]);
    assert_eq!(fields(Some(&stored), &bad(json!({"keyPrefix": "x"}))), ["spec.sessionStorage.keyPrefix"]);
    let remote = remote(redis(json!({"address": "redis"}))).workload;
    let problems: Vec<_> = remote.change_problems(None).into_iter().map(|problem| problem.field).collect();
    assert_eq!(problems, ["spec.sessionStorage.address"]);
    assert_eq!(remote.change_problems(Some(&remote)), []);
}
