//! Kinds of others: without a type, with a type that knows less than the kind, and with managed fields or without.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{CustomResourceExt, Resource, ResourceExt};
use portcullis::webhooks::{
    Context, Mutate, Mutation, RegistrationError, ScopeType, Target, Validate, Verdict, Webhooks,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fleet::{Fleet, fleet};
use super::gate::{Gate, status};
use crate::fixture::Entity;

fn everything() -> Target {
    let all = || vec!["*".to_owned()];
    Target {
        groups: vec!["demo.example".into()],
        versions: all(),
        resources: vec!["*/*".into()],
        scope: ScopeType::Namespaced,
    }
}

/// K1, K2: one webhook for kinds that have no type here, subresources included.
#[tokio::test]
async fn objects_without_a_type_are_judged_and_edited_whole() {
    let judge = Validate::<DynamicObject>::dynamic("judge", everything()).on_update(
        |_: Arc<DynamicObject>, new: Arc<DynamicObject>, cx: Context| async move {
            match new.annotations().get("refuse") {
                Some(_) => Verdict::deny(format!("{} {:?} by {}", cx.kind.kind, cx.sub_resource, new.name_any())),
                None if new.data["spec"]["replicas"] == 7 => {
                    Verdict::deny(format!("{} of {}", cx.kind.kind, cx.resource.resource))
                }
                None => Verdict::allow(),
            }
        },
    );
    let label = Mutate::<DynamicObject>::dynamic("label", everything()).on_create(
        |mut new: DynamicObject, cx: Context| async move {
            new.labels_mut().insert("kind".into(), cx.kind.kind);
            if let Some(spec) = new.data["spec"].as_object_mut() {
                spec.insert("username".into(), json!("from/~here"));
            }
            Mutation::modified(new)
        },
    );
    let gate = Gate::over(Webhooks::new().validate(judge).mutate(label), &[Entity::crd(), Fleet::crd()]).await;
    let sent = json!({"username": "a", "new": {"x": [1, null, 0.1, -9_223_372_036_854_775_808_i64]}});
    let made = gate.create("a", sent).await.unwrap();
    assert_eq!(made.labels()["kind"], "Entity");
    let expected = json!({"username": "from/~here", "new": {"x": [1, null, 0.1, -9_223_372_036_854_775_808_i64]}});
    assert_eq!(made.data["spec"], expected);
    let made = gate.of::<Fleet>().create(&PostParams::default(), &fleet("f")).await.unwrap();
    assert_eq!((made.labels()["kind"].as_str(), &made.spec), ("Fleet", &fleet("f").spec));

    let merge = "application/merge-patch+json";
    let (code, _, refused) = gate.send("PATCH", "fleets/f/scale", merge, &json!({"spec": {"replicas": 7}})).await;
    assert_eq!((code, refused["message"].as_str().unwrap().ends_with("Scale of fleets")), (400, true), "{refused}");
    let refused = gate.change("a", json!({"metadata": {"annotations": {"refuse": ""}}})).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().ends_with("Entity None by a"), "{refused}");
}

#[test]
fn an_untyped_webhook_without_a_target_is_refused() {
    let for_target = |target: Target| {
        let webhook = Validate::<DynamicObject>::dynamic("any", target)
            .on_create(|_: Arc<DynamicObject>, _: Context| async { Verdict::allow() });
        Webhooks::new().validate(webhook).manifests()
    };
    let widgets = Target::from(&ApiResource::from_gvk(&GroupVersionKind::gvk("shop.example", "v1", "Widget")));
    let no_version = Target { versions: Vec::new(), ..widgets.clone() };
    assert_eq!(for_target(widgets).unwrap()[0].name, "any.widgets.shop.example");
    let manifests = for_target(everything()).unwrap();
    assert_eq!(manifests[0].name, "any.dynamic.portcullis.dev");
    assert_eq!((&*manifests[0].rules[0].resources[0], manifests[0].rules[0].scope), ("*/*", ScopeType::Namespaced));
    let said: RegistrationError = for_target(no_version).unwrap_err();
    assert_eq!(said.to_string(), "webhook any matches no resource: name groups, versions and resources, or '*'");
}

/// A Deployment with nothing but its images.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Images {
    metadata: ObjectMeta,
    spec: ImagesSpec,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ImagesSpec {
    template: ImagesTemplate,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ImagesTemplate {
    spec: ImagesPod,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ImagesPod {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Container {
    name: String,
    image: String,
    /// Written by the type though no client sent it.
    #[serde(default)]
    stdin: bool,
}

impl Resource for Images {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Deployment".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "apps".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "deployments".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// controller-runtime#2931 (reverted in #2982), kueue#3469: a defaulter built on older types wrote objects of others
/// back without the fields it did not know.
#[tokio::test]
async fn unknown_fields_are_never_removed_from_objects_of_others() {
    let mirror = Mutate::<Images>::new("mirror").on_create(|mut new: Images, _: Context| async move {
        for container in &mut new.spec.template.spec.containers {
            container.image = format!("mirror/{}", container.image);
        }
        let sidecar = Container { name: "sidecar".into(), image: "log".into(), stdin: false };
        new.spec.template.spec.containers.insert(0, sidecar);
        Mutation::modified(new)
    });
    let gate = Gate::over(Webhooks::new().mutate(mirror), &[]).await;
    let pod = json!({"hostname": "h", "tolerations": [{"operator": "Exists"}], "containers": [
        {"name": "app", "image": "a", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}},
            "env": [{"name": "A", "value": "b"}]},
        {"name": "db", "image": "d", "command": ["run"], "securityContext": {"runAsUser": 7}},
    ]});
    let sent = json!({"metadata": {"name": "d", "annotations": {"a/b": "c"}}, "spec": {"replicas": 3, "paused": true,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}});
    let sent: Deployment = serde_json::from_value(sent).unwrap();
    let plain = PostParams { dry_run: true, ..PostParams::default() };
    // The same, where the webhook is not called.
    let elsewhere: kube::Api<Deployment> = kube::Api::namespaced(gate.client.clone(), "default");
    let expected = elsewhere.create(&plain, &sent).await.unwrap().spec.unwrap();
    let made = gate.of::<Deployment>().create(&PostParams::default(), &sent).await.unwrap().spec.unwrap();

    let mut without = made.clone();
    let containers = &mut without.template.spec.as_mut().unwrap().containers;
    assert_eq!(containers.remove(0).name, "sidecar");
    for container in containers {
        container.image = container.image.as_ref().map(|image| image.replace("mirror/", ""));
    }
    assert_eq!(without, expected);
}

/// Managed fields stay in the object, but only handlers that ask see them.
#[tokio::test]
async fn managed_fields_reach_handlers_that_ask_and_are_never_lost() {
    let tell = |new: &Entity| {
        new.metadata.managed_fields.iter().flatten().filter_map(|f| f.manager.clone()).collect::<Vec<_>>()
    };
    let edit = move |mut new: Entity, told: &str| {
        let seen = format!("{:?}", tell(&new));
        new.metadata.annotations.get_or_insert_default().insert(told.into(), seen);
        Mutation::modified(new)
    };
    let without =
        Mutate::<Entity>::new("without").on_create(move |new, _: Context| async move { edit(new, "without") });
    let with = Mutate::<Entity>::new("with")
        .with_managed_fields()
        .on_create(move |new, _: Context| async move { edit(new, "with") });
    let gate = Gate::over(Webhooks::new().mutate(without).mutate(with), &[Entity::crd()]).await;
    let apply = PatchParams::apply("tester");
    let object = gate.object("a", json!({"username": "a"}));
    let made = gate.api().patch("a", &apply, &Patch::Apply(&object)).await.map_err(|error| status(&error)).unwrap();
    assert_eq!((made.annotations()["without"].as_str(), made.annotations()["with"].as_str()), ("[]", "[\"tester\"]"));
    let managers: Vec<_> = made.managed_fields().iter().filter_map(|field| field.manager.clone()).collect();
    assert_eq!(managers, ["tester"]);
    let owned: &Value = &made.managed_fields()[0].fields_v1.as_ref().unwrap().0;
    assert!(owned["f:spec"]["f:username"].is_object(), "{owned}");
}
