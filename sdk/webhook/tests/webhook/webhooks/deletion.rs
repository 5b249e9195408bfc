//! D9: finalizers of an object that is being deleted can always go, and it takes no value that the rules forbid.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{CustomResourceExt, ResourceExt};
use portcullis::webhooks::{Context, Mutate, Mutation, ScopeType, Target, Validate, Verdict, Webhooks};
use serde_json::{Value, json};

use super::decisions::ask;
use super::fleet::{Fleet, fleet};
use super::gate::{Gate, status};
use crate::fixture::{Entity, review};

const HOLD: &str = "demo.example/hold";

fn hold() -> Value {
    json!({"metadata": {"finalizers": [HOLD]}})
}

fn release() -> Value {
    json!({"metadata": {"finalizers": null}})
}

/// Ends the operator: its webhooks are still registered, without a server.
async fn take_down(gate: &mut Gate) {
    gate.serving.stop.cancel();
    (&mut gate.serving.ended).await.unwrap();
}

async fn patch(api: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<DynamicObject, Value> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(|error| status(&error))
}

/// Stores what `rules` would refuse today: they were laxer when it was made.
struct Rules {
    strict: AtomicBool,
}

impl Rules {
    fn judge(&self, forbidden: bool) -> Verdict {
        if forbidden && self.strict.load(Ordering::SeqCst) {
            return Verdict::deny("this value is forbidden").code(422);
        }
        Verdict::allow()
    }
}

/// Rules for a custom kind and for one of Kubernetes, and a webhook that would change every update of either.
fn strict_later() -> (Arc<Rules>, Webhooks) {
    let rules = Arc::new(Rules { strict: AtomicBool::new(false) });
    let (of_create, of_update, of_maps) = (Arc::clone(&rules), Arc::clone(&rules), Arc::clone(&rules));
    let bad = |entity: &Entity| entity.spec.username == "forbidden";
    let entities = Validate::<Entity>::new("entities")
        .on_create(move |new: Arc<Entity>, _: Context| std::future::ready(of_create.judge(bad(&new))))
        .on_update(move |_: Arc<Entity>, new: Arc<Entity>, _: Context| std::future::ready(of_update.judge(bad(&new))));
    let maps =
        Validate::<ConfigMap>::new("maps").on_update(move |_: Arc<ConfigMap>, new: Arc<ConfigMap>, _: Context| {
            let forbidden = new.data.as_ref().is_some_and(|data| data.contains_key("forbidden"));
            std::future::ready(of_maps.judge(forbidden))
        });
    let stamp_entities =
        Mutate::<Entity>::new("stamp-entities").on_update(|_: Arc<Entity>, mut new: Entity, _: Context| async move {
            new.labels_mut().insert("stamped".into(), "yes".into());
            Mutation::modified(new)
        });
    let stamp_maps = Mutate::<ConfigMap>::new("stamp-maps").on_update(
        |_: Arc<ConfigMap>, mut new: ConfigMap, _: Context| async move {
            new.labels_mut().insert("stamped".into(), "yes".into());
            Mutation::modified(new)
        },
    );
    let webhooks = Webhooks::new().validate(entities).validate(maps).mutate(stamp_entities).mutate(stamp_maps);
    (rules, webhooks)
}

fn maps_of(gate: &Gate) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    Api::namespaced_with(gate.client.clone(), &gate.namespace, &resource)
}

/// An object that waits for a finalizer, in a kind with a spec and in one without.
async fn held(gate: &Gate, name: &str, entity: &str, key: &str) {
    gate.create(name, json!({"username": entity})).await.unwrap();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: "x"}});
    maps_of(gate).create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    for api in [gate.api(), maps_of(gate)] {
        patch(&api, name, &hold()).await.unwrap();
        api.delete(name, &DeleteParams::default()).await.unwrap();
        assert!(api.get(name).await.unwrap().metadata.deletion_timestamp.is_some());
    }
}

#[tokio::test]
async fn a_terminating_object_does_not_take_a_forbidden_value() {
    let (rules, webhooks) = strict_later();
    let mut gate = Gate::over(webhooks, &[Entity::crd()]).await;
    rules.strict.store(true, Ordering::SeqCst);
    held(&gate, "a", "fine", "fine").await;
    let edits = [
        (gate.api(), json!({"spec": {"username": "forbidden"}})),
        (maps_of(&gate), json!({"data": {"forbidden": "x"}})),
    ];
    for down in [false, true] {
        if down {
            take_down(&mut gate).await;
        }
        for (api, edit) in &edits {
            let mut last = release();
            last["spec"] = edit["spec"].clone();
            last["data"] = edit["data"].clone();
            for edit in [edit, &last] {
                let refused = patch(api, "a", edit).await.expect_err("it took a forbidden value");
                let message = refused["message"].as_str().unwrap();
                let said = if down { "failed calling webhook" } else { "this value is forbidden" };
                assert!(message.contains(said), "down: {down}: {refused}");
            }
            let stays = api.get("a").await.unwrap();
            assert!(!stays.data.to_string().contains("forbidden") && stays.finalizers() == [HOLD], "{stays:?}");
        }
    }
    for api in [gate.api(), maps_of(&gate)] {
        patch(&api, "a", &release()).await.unwrap();
        assert!(api.get_opt("a").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_broken_object_loses_its_finalizers_with_the_webhook_down() {
    let (rules, webhooks) = strict_later();
    let mut gate = Gate::over(webhooks, &[Entity::crd()]).await;
    for name in ["up", "down"] {
        held(&gate, name, "forbidden", "forbidden").await;
    }
    rules.strict.store(true, Ordering::SeqCst);
    let labelled = json!({"metadata": {"labels": {"left": "x"}}});
    let edit = json!({"metadata": {"labels": {"left": "x"}}, "data": {"b": "c"}, "spec": {"b": 1}});
    let mut last = release();
    last["metadata"]["labels"] = json!({"left": null, "seen": "x"});
    for name in ["up", "down"] {
        if name == "down" {
            take_down(&mut gate).await;
        }
        for api in [gate.api(), maps_of(&gate)] {
            patch(&api, name, &edit).await.expect_err("the webhook was not in the way");
            patch(&api, name, &labelled).await.unwrap();
            patch(&api, name, &last).await.unwrap();
            assert!(api.get_opt(name).await.unwrap().is_none(), "{name}");
        }
    }
}

#[tokio::test]
async fn an_update_that_no_handler_judges_is_not_patched_either() {
    let (_, webhooks) = strict_later();
    let gate = Gate::over(webhooks, &[Entity::crd()]).await;
    held(&gate, "a", "fine", "fine").await;
    for (api, edit) in [(gate.api(), json!({"spec": {"username": "b"}})), (maps_of(&gate), json!({"data": {"b": "c"}}))]
    {
        let unstamp = json!({"metadata": {"labels": null, "annotations": {"mark": "x"}}});
        let written = patch(&api, "a", &unstamp).await.unwrap();
        assert!(written.labels().is_empty(), "{written:?}");
        let edited = patch(&api, "a", &edit).await.unwrap();
        assert_eq!(edited.labels()["stamped"], "yes", "an edit of the rest is mutated as ever");
        patch(&api, "a", &release()).await.unwrap();
    }
}

/// Kinds whose members beside `metadata` and `status` differ, each with edits of them.
fn kinds() -> Vec<(&'static str, &'static str, Value, Vec<Value>)> {
    let pod = json!({"containers": [{"name": "a", "image": "a"}]});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    // Many members, and one that is large: the condition has a budget.
    let many: serde_json::Map<String, Value> =
        (0..4000).map(|key| (format!("k{key}"), json!("x".repeat(200)))).collect();
    let parts: Vec<Value> =
        (0..8000).map(|part| json!({"name": format!("part-{part}"), "image": "i".repeat(60)})).collect();
    vec![
        (
            "v1",
            "ConfigMap",
            json!({"data": {"a": "b"}}),
            vec![
                json!({"data": {"a": "c"}}),
                json!({"data": null}),
                json!({"binaryData": {"b": "YQ=="}}),
                json!({"immutable": true}),
            ],
        ),
        ("v1", "ConfigMap", json!({"data": many}), vec![json!({"data": {"k3999": "y"}}), json!({"immutable": true})]),
        (
            "v1",
            "Secret",
            json!({"data": {"a": "YQ=="}}),
            vec![json!({"stringData": {"a": "b"}}), json!({"data": {"a": null}})],
        ),
        (
            "v1",
            "ServiceAccount",
            json!({}),
            vec![json!({"automountServiceAccountToken": false}), json!({"secrets": [{"name": "s"}]})],
        ),
        ("v1", "Service", json!({"spec": {"ports": [{"port": 80}]}}), vec![json!({"spec": {"externalName": "a.b"}})]),
        ("v1", "Pod", json!({"spec": pod}), vec![json!({"spec": {"activeDeadlineSeconds": 5}})]),
        (
            "v1",
            "PodTemplate",
            json!({"template": template}),
            vec![json!({"template": {"metadata": {"labels": {"a": "c"}}}})],
        ),
        (
            "apps/v1",
            "Deployment",
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            vec![json!({"spec": {"replicas": 3}})],
        ),
        ("apps/v1", "ControllerRevision", json!({"revision": 1, "data": {"a": 1}}), vec![json!({"revision": 2})]),
        (
            "rbac.authorization.k8s.io/v1",
            "Role",
            json!({}),
            vec![json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})],
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"roleRef": role}),
            vec![json!({"subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}]})],
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": []}),
            vec![json!({"endpoints": [{"addresses": ["10.1.2.3"]}]})],
        ),
        (
            "demo.example/v1",
            "Entity",
            json!({"spec": {"username": "a", "parts": parts}}),
            vec![json!({"spec": {"username": "b"}}), json!({"spec": {"new": 0.5}})],
        ),
        ("demo.example/v1", "Fleet", json!({"spec": fleet("f").spec}), vec![json!({"spec": {"replicas": 3}})]),
    ]
}

/// One webhook over whatever kinds, without types. It refuses every update that it is asked about, but of its own
/// Service.
fn no_updates(resources: &str, scope: ScopeType) -> Webhooks {
    let all = || vec!["*".to_owned()];
    let target = Target { groups: all(), versions: all(), resources: vec![resources.to_owned()], scope };
    let mut judge = Validate::<DynamicObject>::dynamic("judge", target).on_update(
        |_: Arc<DynamicObject>, new: Arc<DynamicObject>, _: Context| async move {
            if new.name_any() == "entity-operator" {
                return Verdict::allow();
            }
            Verdict::deny("no updates").code(422)
        },
    );
    // As many conditions as it can have beside those that are added.
    let most = if scope == ScopeType::Namespaced { 63 } else { 62 };
    for index in 0..most {
        judge = judge.match_condition(format!("c{index}"), "request.operation == 'UPDATE'");
    }
    Webhooks::new().validate(judge)
}

#[tokio::test]
async fn no_edit_of_a_spec_goes_past_the_webhook_in_any_kind() {
    let mut gate = Gate::over(no_updates("*/*", ScopeType::Namespaced), &[Entity::crd(), Fleet::crd()]).await;
    let mut objects = Vec::new();
    for (index, (api_version, kind, content, edits)) in kinds().into_iter().enumerate() {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let plural = if kind == "Entity" { "entities".to_owned() } else { ApiResource::from_gvk(&gvk).plural };
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        let api: Api<DynamicObject> = Api::namespaced_with(gate.client.clone(), &gate.namespace, &resource);
        let name = format!("held-{index}");
        let mut object = DynamicObject::new(&name, &resource);
        object.metadata.finalizers = Some(["x", "y"].map(|end| format!("{HOLD}-{end}")).into());
        object.data = content;
        api.create(&PostParams::default(), &object).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        let live = patch(&api, &name, &json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap_err();
        assert_eq!(live["code"], 422, "{kind}: metadata of an object that stays is judged: {live}");
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        objects.push((kind, name, api, edits));
    }
    for down in [false, true] {
        if down {
            take_down(&mut gate).await;
        }
        for (kind, name, api, edits) in &objects {
            for edit in edits {
                let refused = patch(api, name, edit).await.expect_err(kind);
                let message = refused["message"].as_str().unwrap();
                let said = if down { "failed calling webhook" } else { "no updates" };
                assert!(message.contains(said), "{kind} {edit}, down: {down}: {refused}");
            }
            let fewer = if down { Value::Null } else { json!([format!("{HOLD}-x")]) };
            let fewer = json!({"metadata": {"finalizers": fewer, "labels": {"down": down.to_string()}}});
            patch(api, name, &fewer).await.unwrap_or_else(|error| panic!("{kind}, down: {down}: {error}"));
        }
    }
    for (kind, name, api, _) in &objects {
        assert!(api.get_opt(name).await.unwrap().is_none(), "{kind}");
    }
}

/// Configurations of an earlier version, and API servers that know no match conditions, send what the condition
/// exempts.
#[tokio::test]
async fn an_exempt_request_is_allowed_even_if_it_is_sent() {
    let routes = no_updates("*/*", ScopeType::Any).routes().unwrap();
    let object = |deleted: bool, content: Value| {
        let mut object = content;
        object["metadata"] = json!({"name": "a"});
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        }
        object
    };
    let (held, none) = (json!({"spec": {"finalizers": ["kubernetes"]}}), json!({"spec": {}}));
    let namespaces = ("", "namespaces", "finalize");
    let things = ("demo.example", "things", "");
    let cases = [
        (namespaces, true, &held, &none, true),
        (namespaces, false, &held, &none, false),
        (("", "namespaces", ""), true, &held, &none, false),
        (("demo.example", "namespaces", "finalize"), true, &held, &none, false),
        (("", "things", "finalize"), true, &held, &none, false),
        (things, true, &held, &held, true),
        (things, false, &held, &held, false),
        (things, true, &held, &none, false),
        (things, true, &json!({"data": 1}), &json!({"data": 1, "more": 1}), false),
        (things, true, &json!({"data": 1, "more": 1}), &json!({"data": 1}), false),
        (things, true, &json!({"status": 1}), &json!({}), true),
    ];
    for ((group, resource, subresource), deleted, old, new, allowed) in cases {
        let mut review = review("UPDATE", object(deleted, new.clone()), object(deleted, old.clone()));
        review["request"]["resource"] = json!({"group": group, "version": "v1", "resource": resource});
        review["request"]["subResource"] = json!(subresource);
        let (_, answer) = ask(&routes, "/validate/judge", &review).await;
        assert_eq!(answer["response"]["allowed"], allowed, "{group}/{resource}/{subresource} {old} {new}: {answer}");
    }
}

/// Namespaces keep finalizers in their spec. What finalizes one that stays is judged.
#[tokio::test]
async fn a_namespace_is_finalized_while_its_webhook_is_down() {
    let mut gate = Gate::over(no_updates("namespaces/*", ScopeType::Any), &[]).await;
    let namespaces: Api<Namespace> = Api::all(gate.client.clone());
    let finalize = async |gate: &Gate| {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": gate.namespace}, "spec": {"finalizers": []}});
        let request = http::Request::put(format!("/api/v1/namespaces/{}/finalize", gate.namespace))
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .unwrap();
        gate.client.request::<Value>(request).await.map_err(|error| status(&error))
    };
    let refused = finalize(&gate).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("no updates"), "{refused}");
    take_down(&mut gate).await;
    let refused = finalize(&gate).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("failed calling webhook"), "{refused}");
    namespaces.delete(&gate.namespace, &DeleteParams::default()).await.unwrap();
    finalize(&gate).await.unwrap();
    assert!(namespaces.get_opt(&gate.namespace).await.unwrap().is_none());
}

/// A subresource that is the whole object, and one that is another kind.
#[tokio::test]
async fn the_status_of_a_terminating_object_needs_no_webhook() {
    let mut gate = Gate::over(no_updates("fleets/*", ScopeType::Namespaced), &[Fleet::crd()]).await;
    let fleets = gate.of::<Fleet>();
    let mut held = fleet("a");
    held.metadata.finalizers = Some(vec![HOLD.into()]);
    fleets.create(&PostParams::default(), &held).await.unwrap();
    let merge = "application/merge-patch+json";
    let (phase, replicas) = (json!({"status": {"phase": "Lost"}}), json!({"spec": {"replicas": 7}}));
    assert_eq!(gate.send("PATCH", "fleets/a/status", merge, &phase).await.0, 422, "it stays");
    fleets.delete("a", &DeleteParams::default()).await.unwrap();
    for (down, phase) in [(false, "Lost"), (true, "Found")] {
        if down {
            take_down(&mut gate).await;
        }
        let (code, _, written) =
            gate.send("PATCH", "fleets/a/status", merge, &json!({"status": {"phase": phase}})).await;
        assert_eq!((code, &written["status"]["phase"]), (200, &json!(phase)), "{written}");
        let (code, _, refused) = gate.send("PATCH", "fleets/a/scale", merge, &replicas).await;
        assert_eq!(code, if down { 500 } else { 422 }, "{refused}");
    }
}
