//! Verdicts of the registered validators on a manifest, without the API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::DynamicObject;
use portcullis::conversion::Convert;
use portcullis::webhooks::{Context, Mutate, Mutation, ScopeType, Target, Validate, Verdict, Webhooks};
use serde_json::{Value, json};

use crate::boat::{Boat, webhooks};

async fn said(webhooks: &Webhooks, object: Value) -> Vec<String> {
    let evaluations = webhooks.explain(&object).await;
    evaluations
        .into_iter()
        .map(|evaluation| {
            let verdict = match &evaluation.verdict {
                Ok(verdict) => verdict.denial().map_or("allowed", |denial| denial.message()).to_owned(),
                Err(problem) => format!("error: {problem}"),
            };
            format!("{}: {verdict}", evaluation.webhook)
        })
        .collect()
}

fn boat(spec: Value) -> Value {
    json!({"apiVersion": "kit.example/v1", "kind": "Boat", "metadata": {"name": "a", "namespace": "team"}, "spec": spec})
}

fn selector(key: &str, value: &str) -> LabelSelector {
    LabelSelector { match_labels: Some([(key.to_owned(), value.to_owned())].into()), ..LabelSelector::default() }
}

async fn deny(_: Arc<Boat>, context: Context) -> Verdict {
    assert!(context.dry_run && context.permit().is_none());
    Verdict::deny(format!("no {:?}", context.namespace))
}

#[tokio::test]
async fn explain_asks_every_webhook_for_the_creation_of_an_object() {
    let target = Target {
        groups: vec!["kit.example".into()],
        versions: vec!["*".into()],
        resources: vec!["boats".into()],
        scope: ScopeType::Any,
    };
    let untyped =
        |new: Arc<DynamicObject>, _: Context| async move { Verdict::deny(new.data["spec"]["oars"].to_string()) };
    let webhooks = webhooks()
        .validate(Validate::dynamic("untyped", target).on_create(untyped))
        .validate(Validate::<Boat>::new("changes").on_update(|_, new, context| deny(new, context)))
        .validate(Validate::<ConfigMap>::new("others").on_create(|_, _| async { Verdict::deny("never asked") }))
        .mutate(Mutate::<Boat>::new("edits").on_create(|_, _| async { Mutation::unchanged() }))
        .validate(Validate::<Boat>::new("last").on_create(deny));
    assert_eq!(
        said(&webhooks, boat(json!({"oars": 3}))).await,
        ["oars: a boat goes in circles", "untyped: 3", "last: no Some(\"team\")"]
    );
    let unread = said(&webhooks, boat(json!({"oars": "many"}))).await;
    assert!(unread[0].starts_with("oars: the object does not decode as Boat: "), "{unread:?}");
    for nothing in [json!({}), json!("text"), json!({"apiVersion": "v1", "kind": "Boat"})] {
        assert_eq!(said(&webhooks, nothing).await, [""; 0]);
    }
}

#[tokio::test]
async fn selectors_are_evaluated_as_far_as_the_object_allows() {
    let webhook = |name| Validate::<Boat>::new(name).on_create(deny);
    let webhooks = Webhooks::new()
        .validate(webhook("labelled").object_selector(selector("fast", "yes")))
        .validate(webhook("elsewhere").namespace_selector(selector("kubernetes.io/metadata.name", "other")))
        .validate(webhook("here").namespace_selector(selector("kubernetes.io/metadata.name", "team")))
        .validate(webhook("unknown").namespace_selector(selector("paid", "yes")));
    assert_eq!(said(&webhooks, boat(json!({"oars": 2}))).await.len(), 2);
    let mut labelled = boat(json!({"oars": 2}));
    labelled["metadata"]["labels"] = json!({"fast": "yes"});
    assert_eq!(said(&webhooks, labelled).await.len(), 3);
}

async fn panics(_: Arc<Boat>, _: Context) -> Verdict {
    panic!("secret")
}

async fn fails(_: Arc<Boat>, _: Context) -> anyhow::Result<Verdict> {
    Err(anyhow::anyhow!("nobody answers").context("cannot look up the boat"))
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_fails_or_hangs_stops_no_other() {
    let webhooks = Webhooks::new()
        .validate(Validate::<Boat>::new("a").on_create(panics))
        .validate(
            Validate::<Boat>::new("b")
                .timeout(Duration::from_secs(2))
                .on_create(|_, _| std::future::pending::<Verdict>()),
        )
        .validate(Validate::<Boat>::new("f").on_create(fails))
        .validate(Validate::<Boat>::new("c").on_create(|_, _| async { Verdict::allow() }));
    assert_eq!(
        said(&webhooks, boat(json!({"oars": 2}))).await,
        [
            "a: error: handler panicked",
            "b: error: handler did not finish within 2 s",
            "f: error: handler failed: cannot look up the boat: nobody answers",
            "c: allowed"
        ]
    );
}

mod old {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "kit.example", version = "v1alpha1", kind = "Boat", namespaced)]
    pub(crate) struct BoatSpec {
        pub(crate) rowers: u32,
    }
}

#[tokio::test]
async fn an_object_of_another_version_is_converted_first() {
    let to = |old: old::Boat| Boat { metadata: old.metadata, ..crate::boat::boat("", old.spec.rowers) };
    let from = |new: Boat| old::Boat { metadata: new.metadata, spec: old::BoatSpec { rowers: new.spec.oars } };
    let mut object = boat(json!({"rowers": 3}));
    object["apiVersion"] = json!("kit.example/v1alpha1");
    assert_eq!(said(&webhooks(), object.clone()).await, [""; 0], "nobody can tell what it means");
    let webhooks = webhooks().convert(Convert::<Boat>::hub().spoke(to, from));
    assert_eq!(said(&webhooks, object).await, ["oars: a boat goes in circles"]);
}
