//! The kind of these tests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt as _, Resource};
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "kit.example", version = "v1", kind = "Boat", namespaced, status = "BoatStatus")]
pub(crate) struct BoatSpec {
    pub(crate) oars: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BoatStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub(crate) conditions: Option<Vec<Condition>>,
}

/// Boats that belong together, wherever they are.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "kit.example", version = "v1", kind = "Fleet", status = "FleetStatus")]
pub(crate) struct FleetSpec {
    /// Where its flag is kept.
    pub(crate) home: String,
    pub(crate) motto: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FleetStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boats: Option<usize>,
}

/// The CRD, with a schema that lets a spec in which does not decode, and no status that is null, as most that are written by hand.
pub(crate) fn crd() -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
    let mut crd: Value = serde_json::to_value(Boat::crd()).unwrap();
    let properties = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    properties["spec"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    properties["status"].as_object_mut().unwrap().remove("nullable");
    serde_json::from_value(crd).unwrap()
}

pub(crate) fn boat(name: &str, oars: u32) -> Boat {
    Boat::new(name, BoatSpec { oars, name: None })
}

/// Boats have an even number of oars.
pub(crate) fn webhooks() -> Webhooks {
    Webhooks::new().validate(Validate::<Boat>::new("oars").on_create(even))
}

async fn even(new: Arc<Boat>, _: Context) -> Verdict {
    match new.spec.oars % 2 {
        0 => Verdict::allow(),
        _ => Verdict::deny("a boat goes in circles").code(422).cause("spec.oars", "must be even"),
    }
}

impl Boat {
    /// Status, reason and message of a condition.
    pub(crate) fn says(&self, type_: &str) -> Option<(&str, &str, &str)> {
        let conditions = self.status.as_ref()?.conditions.as_ref()?;
        let found = conditions.iter().find(|condition| condition.type_ == type_)?;
        Some((&found.status, &found.reason, &found.message))
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.meta().finalizers.iter().flatten().any(|finalizer| finalizer == name)
    }
}
