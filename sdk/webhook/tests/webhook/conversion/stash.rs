//! The annotation that carries what a version cannot say, in the hands of those who may write that version alone.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use portcullis::conversion::STASH;
use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use super::fixture::{Home, PATIENCE};
use super::kinds::{defaulted, forged};

/// The kind, with nicknames that a CEL rule of `v3`, the only version that has them, makes immutable.
fn crd() -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(forged::crd("v3")).unwrap();
    let versions = crd["spec"]["versions"].as_array_mut().unwrap();
    let v3 = versions.iter_mut().find(|version| version["name"] == "v3").unwrap();
    let spec = &mut v3["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["x-kubernetes-validations"] = json!([
        { "rule": "has(self.nicknames) == has(oldSelf.nicknames)", "message": "nicknames are for ever" },
        { "rule": "!has(self.nicknames) || self.nicknames == oldSelf.nicknames", "message": "nicknames are for ever" },
    ]);
    serde_json::from_value(crd).unwrap()
}

fn guarded() -> LabelSelector {
    LabelSelector {
        match_labels: Some([("guarded-by".to_owned(), "hub".to_owned())].into()),
        ..LabelSelector::default()
    }
}

/// The same rule, in a webhook for the hub version.
async fn same_nicknames(old: Arc<forged::v3::Person>, new: Arc<forged::v3::Person>, _: Context) -> Verdict {
    if old.spec.nicknames == new.spec.nicknames {
        return Verdict::allow();
    }
    Verdict::deny("nicknames are for ever, whoever writes")
}

/// Patches by which a user with rights on `v1` alone tries to change, or to drop, fields that only `v3` has.
fn forgeries() -> [Value; 2] {
    let stash = json!({ "v3": { "o": { "spec": { "nicknames": ["Forged"] } }, "r": { "spec": {} } } }).to_string();
    [
        json!({ "metadata": { "annotations": { STASH: stash } } }),
        json!({ "metadata": { "annotations": { STASH: null } } }),
    ]
}

async fn patch(home: &Home, version: &str, name: &str, patch: &Value) -> Result<DynamicObject, String> {
    let patched = home.api(version).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map_err(|error| error.to_string())
}

async fn nicknames(home: &Home, name: &str) -> Value {
    home.api("v3").get(name).await.unwrap().data["spec"]["nicknames"].clone()
}

#[tokio::test]
async fn a_rule_for_the_hub_version_holds_for_writers_of_old_ones() {
    let rule = Validate::<forged::v3::Person>::new("hub").on_update(same_nicknames).object_selector(guarded());
    let webhooks = Webhooks::new().convert(forged::convert()).validate(rule);
    let mut home = Home::of(ControlPlane::shared().await, webhooks, crd()).await;
    home.serve().await;
    home.convert().await;
    home.admit().await;
    for guard in ["nobody", "hub"] {
        let ada = home.object(
            "v3",
            &json!({
                "metadata": { "name": guard, "labels": { "guarded-by": guard }, "finalizers": ["demo.example/keep"] },
                "spec": { "first": "Ada", "last": "King", "nicknames": ["Countess"] },
            }),
        );
        home.api("v3").create(&PostParams::default(), &serde_json::from_value(ada).unwrap()).await.unwrap();
        let refused = patch(&home, "v3", guard, &json!({ "spec": { "nicknames": ["Ada"] } })).await.unwrap_err();
        assert!(refused.contains("nicknames are for ever"), "{refused}");
    }
    let [forged, dropped] = forgeries();

    // The rule is one of v3's schema, and the API server asks the schema of the version that is written.
    patch(&home, "v1", "nobody", &forged).await.unwrap();
    assert_eq!(nicknames(&home, "nobody").await, json!(["Forged"]));

    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let guard = "hub";
    let old = home.api("v1");
    let in_force = || async { old.patch(guard, &dry, &Patch::Merge(&forged)).await.err().map(drop) };
    wait_until("the webhooks to be in force", PATIENCE, in_force).await;
    // The object's own value, in a text that JSON takes for the same and the conversion for none.
    let kept = old.get(guard).await.unwrap().metadata.annotations.unwrap().remove(STASH).unwrap();
    let twice = kept.replacen(r#"{"o":"#, r#"{"o":{},"o":"#, 1);
    assert_ne!(twice, kept);
    let disguised = [format!("{kept}{}", " ".repeat(66 * 1024)), twice]
        .map(|stash| json!({ "metadata": { "annotations": { STASH: stash } } }));
    let refused = async |version: &str| {
        for forgery in [&forged, &dropped].into_iter().chain(&disguised) {
            let error = patch(&home, version, guard, forgery).await.unwrap_err();
            assert!(error.contains("nicknames are for ever, whoever writes"), "{version}: {error}");
        }
    };
    refused("v1").await;
    refused("v2").await;
    patch(&home, "v1", guard, &json!({ "spec": { "name": "Ada Lovelace", "notes": "edited" } })).await.unwrap();
    assert_eq!(nicknames(&home, guard).await, json!(["Countess"]), "an honest edit keeps them");

    // They stay, since tools that clean up may go by them; and the finalizer goes.
    home.api("v3").delete(guard, &DeleteParams::default()).await.unwrap();
    refused("v1").await;
    assert_eq!(nicknames(&home, guard).await, json!(["Countess"]));
    patch(&home, "v1", guard, &json!({ "metadata": { "finalizers": null } })).await.unwrap();
    assert!(home.api("v3").get_opt(guard).await.unwrap().is_none());
    patch(&home, "v3", "nobody", &json!({ "metadata": { "finalizers": null } })).await.unwrap();
}

/// The API server converts the object for the webhook, and the patched one back to the version of the request.
#[tokio::test]
async fn a_default_of_the_hub_holds_for_writers_of_old_versions() {
    let fill = |mut new: defaulted::v3::Person, _: Context| async move {
        if new.spec.nicknames.is_empty() {
            new.spec.nicknames.push("Nobody".to_owned());
        }
        Mutation::modified(new)
    };
    let defaults = Mutate::<defaulted::v3::Person>::new("defaults").on_create_or_update(fill);
    let webhooks = Webhooks::new().convert(defaulted::convert()).mutate(defaults);
    let mut home = Home::of(ControlPlane::shared().await, webhooks, defaulted::crd("v3")).await;
    home.serve().await;
    home.convert().await;
    home.admit().await;
    let ada = home.person("v1", "ada", json!({ "name": "Ada King" }));
    home.api("v1").create(&PostParams::default(), &ada).await.unwrap();
    assert_eq!(nicknames(&home, "ada").await, json!(["Nobody"]));
    patch(&home, "v3", "ada", &json!({ "spec": { "nicknames": ["Countess"] } })).await.unwrap();
    patch(&home, "v1", "ada", &json!({ "spec": { "name": "Ada Lovelace" } })).await.unwrap();
    assert_eq!(nicknames(&home, "ada").await, json!(["Countess"]), "a default is for what is missing");
}
