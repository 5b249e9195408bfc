//! Settings of a webhook, in its manifest and in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::CustomResourceExt;
use kube::api::PostParams;
use portcullis::webhooks::{
    Context, MatchPolicy, Mutate, Mutation, Permit, ReinvocationPolicy, ScopeType, Validate, Verdict, Webhooks,
};
use portcullis_manifest::SideEffects;
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use super::gate::Gate;
use crate::fixture::{Entity, webhooks};

/// K4
#[test]
fn settings_are_in_the_manifest_and_safe_where_nothing_was_said() {
    let defaults = |new: Entity, _: Context| async { Mutation::modified(new) };
    let webhooks = Webhooks::new().mutate(Mutate::<Entity>::new("plain").on_create(defaults)).mutate(
        Mutate::<Entity>::new("set")
            .on_create(defaults)
            .match_policy(MatchPolicy::Exact)
            .reinvocation_policy(ReinvocationPolicy::Never)
            .scope(ScopeType::Any)
            .side_effects(),
    );
    let manifests = webhooks.manifests().unwrap();
    let said = |index: usize| {
        let manifest = &manifests[index];
        (manifest.match_policy, manifest.reinvocation_policy, manifest.rules[0].scope, manifest.side_effects)
    };
    assert_eq!(
        said(0),
        (MatchPolicy::Equivalent, ReinvocationPolicy::IfNeeded, ScopeType::Namespaced, SideEffects::None)
    );
    assert_eq!(said(1), (MatchPolicy::Exact, ReinvocationPolicy::Never, ScopeType::Any, SideEffects::NoneOnDryRun));
}

/// A side effect outside of the cluster, which needs a permit.
#[derive(Default)]
struct Registry(AtomicUsize);

impl Registry {
    fn take(&self, _: &Permit) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// K1: dry run.
#[tokio::test]
async fn a_dry_run_gets_no_permit_for_side_effects() {
    let registry = Arc::new(Registry::default());
    let register = |registry: &Arc<Registry>| {
        let registry = Arc::clone(registry);
        move |_: Arc<Entity>, cx: Context| {
            let registry = Arc::clone(&registry);
            async move {
                if let Some(permit) = cx.permit() {
                    registry.take(&permit);
                }
                Verdict::allow().warn(format!("dry run: {}", cx.dry_run))
            }
        }
    };
    let undeclared = Arc::new(Registry::default());
    let webhooks = Webhooks::new()
        .validate(Validate::<Entity>::new("declared").side_effects().on_create(register(&registry)))
        .validate(Validate::<Entity>::new("undeclared").on_create(register(&undeclared)));
    let gate = Gate::over(webhooks, &[Entity::crd()]).await;
    let object = gate.object("a", json!({"username": "a"}));
    for (dry_run, taken) in [(true, 0), (false, 1)] {
        let params = PostParams { dry_run, ..PostParams::default() };
        gate.api().create(&params, &object).await.unwrap();
        assert_eq!(registry.0.load(Ordering::SeqCst), taken, "dry run: {dry_run}");
    }
    assert_eq!(undeclared.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_webhook_is_reinvoked_after_a_later_change() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let first = Mutate::<Entity>::new("first").on_create(move |new: Entity, _: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Mutation::modified(new) }
    });
    let second = Mutate::<Entity>::new("second").on_create(|mut new: Entity, _: Context| async move {
        new.spec.replicas = 5;
        Mutation::modified(new)
    });
    let gate = Gate::over(Webhooks::new().mutate(first).mutate(second), &[Entity::crd()]).await;
    gate.create("a", json!({"username": "a"})).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 2, "another webhook changed the object after it");
}

/// K1: audit annotations of a handler, and who sees them.
#[tokio::test]
async fn audit_annotations_have_the_webhooks_name_in_the_audit_log() {
    let noted = Mutate::<Entity>::new("noted")
        .on_create(|new: Entity, _: Context| async { Mutation::modified(new).audit("rule", "none") });
    let judged = Validate::<Entity>::new("judged").on_create(|new: Arc<Entity>, _: Context| async move {
        match new.spec.username.as_str() {
            "bad" => Verdict::deny("bad").audit("decision", "refused"),
            _ => Verdict::allow().audit("decision", "allowed").audit("rule", "7"),
        }
    });
    let gate = Gate::over(Webhooks::new().mutate(noted).validate(judged), &[Entity::crd()]).await;
    gate.create("good", json!({"username": "good"})).await.unwrap();
    gate.create("bad", json!({"username": "bad"})).await.unwrap_err();

    let log = ControlPlane::shared().await.directory().join("audit.log");
    let annotations = async |name: &str| -> Value {
        wait_until("the event of the creation", Duration::from_mins(1), || async {
            let log = std::fs::read_to_string(&log).unwrap();
            let mut events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let event = events.find(|event| {
                let object = &event["objectRef"];
                object["namespace"] == gate.namespace && event["stage"] == "ResponseComplete" && object["name"] == name
            });
            event.map(|event| event["annotations"].clone())
        })
        .await
    };
    let good = annotations("good").await;
    assert_eq!(good["judged.entities.demo.example/decision"], "allowed");
    assert_eq!(good["judged.entities.demo.example/rule"], "7");
    assert_eq!(good["noted.entities.demo.example/rule"], "none");
    assert_eq!(annotations("bad").await["judged.entities.demo.example/decision"], "refused");
}

/// K1: the API server would drop the last ones without a word.
#[tokio::test]
async fn warnings_beyond_what_kubernetes_keeps_are_counted() {
    let many = Validate::<Entity>::new("many").on_create(|_: Arc<Entity>, _: Context| async {
        (0..30).fold(Verdict::allow(), |verdict, index| verdict.warn(format!("{index:02}{}", "w".repeat(300))))
    });
    let gate = Gate::over(Webhooks::new().validate(many), &[Entity::crd()]).await;
    let object = serde_json::to_value(gate.object("a", json!({"username": "a"}))).unwrap();
    let (code, warnings, _) = gate.send("POST", "entities", "application/json", &object).await;
    assert_eq!((code, warnings.len()), (201, 16));
    assert!(warnings[14].ends_with("ww…\"") && warnings[14].contains(" \"14w"), "{}", warnings[14]);
    assert_eq!(warnings[15], "299 - \"… and 15 more warnings\"");
}

/// An operator that takes the place of another keeps what users and their scripts know.
#[test]
fn a_full_name_must_be_valid_and_unique() {
    let named =
        |name: &str| Validate::<Entity>::new(name).on_create(|_: Arc<Entity>, _: Context| async { Verdict::allow() });
    let manifests = Webhooks::new().validate(named("judged").full_name("vjudged.kb.io")).manifests().unwrap();
    assert_eq!((&*manifests[0].name, &*manifests[0].path), ("vjudged.kb.io", "/validate/judged"));

    let mutate = Mutate::<Entity>::new("judged").on_create(|new: Entity, _: Context| async { Mutation::modified(new) });
    let both =
        Webhooks::new().validate(named("judged").full_name("judged.kb.io")).mutate(mutate.full_name("judged.kb.io"));
    assert!(both.manifests().is_ok(), "the other configuration is another list");

    for refused in ["", "judged", "kb.io", "Judged.kb.io", "judged..kb.io", ".kb.io", "judged.kb.io."] {
        let said = Webhooks::new().validate(named("judged").full_name(refused)).routes().unwrap_err().to_string();
        let expected = "is not a DNS subdomain of three labels at least, as in check.shop.example";
        assert_eq!(said, format!("full name {refused:?} of a webhook {expected}"));
    }
    let twice = Webhooks::new().validate(named("a").full_name("a.kb.io")).validate(named("b").full_name("a.kb.io"));
    assert_eq!(
        twice.manifests().unwrap_err().to_string(),
        "two webhooks are registered as a.kb.io: give one of them another name"
    );
}

#[test]
fn what_would_be_registered_twice_or_never_called_is_refused() {
    let yes = |_: Arc<Entity>, _: Context| async { Verdict::allow() };
    let named = |name: &str| Validate::<Entity>::new(name).on_create(yes);
    let twice = webhooks().validate(named("username").path("/other"));
    assert_eq!(
        twice.manifests().unwrap_err().to_string(),
        "two webhooks are registered as username.entities.demo.example: give one of them another name"
    );
    assert!(twice.routes().is_err());
    // The other configuration is another list.
    let both = Mutate::<Entity>::new("username").on_create(|new: Entity, _: Context| async { Mutation::modified(new) });
    assert!(webhooks().mutate(both).manifests().is_ok());
    let none = Webhooks::new().validate(named("a").concurrency(0));
    assert!(none.manifests().unwrap_err().to_string().contains("concurrency of webhook a is 0"));
    for subresource in ["", "/status", "status/"] {
        let none = Validate::<Entity>::subresource_of::<Entity>("a", subresource).on_create(yes);
        let said = Webhooks::new().validate(none).manifests().unwrap_err().to_string();
        assert!(said.contains("webhook a matches no resource"), "{subresource:?}: {said}");
    }
}
