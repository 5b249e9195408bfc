//! What the operator does with entities that are stored: it says in the status what somebody is called.
//!
//! The status is the same in all versions and no business of the converters: it is in the CRD, and in no version's type.
//! Its conditions are there for `run --webhooks off`: what the webhooks would have said is then said in `Valid`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceSubresourceStatus, CustomResourceSubresources, JSONSchemaProps,
};
use portcullis::controller::{Controller, ControllerError, Next, Pass};
use portcullis::manifest::Grant;
use portcullis::operator::Runtime;
use serde::Serialize;
use serde_json::json;

use crate::v3::Entity;

/// What is observed of an entity.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct EntityStatus {
    full_name: String,
}

/// What should be, from what is.
fn observed(entity: &Entity) -> EntityStatus {
    let names = [entity.spec.firstname.trim(), entity.spec.lastname.trim()];
    EntityStatus { full_name: names.join(" ").trim().to_owned() }
}

async fn reconcile(pass: Pass<Entity>) -> Result<Next, ControllerError> {
    pass.status(&observed(&pass.object)).await?;
    Ok(Next::Wait)
}

/// Runs the controller until the process is to end.
pub async fn run(runtime: Runtime) {
    Controller::<Entity>::named("entity-operator").run(runtime, reconcile).await;
}

/// What it may do: read entities, write their status, and tell what is wrong with one.
pub fn grants() -> Vec<Grant> {
    vec![
        Grant::new("demo.example", &["entities"], &["list", "watch"]),
        Grant::new("demo.example", &["entities/status"], &["patch"]),
        Grant::new("events.k8s.io", &["events"], &["create"]),
    ]
}

/// Gives every version of the kind its status.
pub(crate) fn with_status(mut crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, serde_json::Error> {
    let status: JSONSchemaProps = serde_json::from_value(json!({
        "type": "object", "description": "What the operator observed.",
        "properties": {
            "fullName": { "type": "string", "description": "First and last name." },
            "conditions": {
                "type": "array", "description": "What holds of the entity.",
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": {
                    "type": "object", "required": ["lastTransitionTime", "message", "reason", "status", "type"],
                    "properties": {
                        "type": { "type": "string" }, "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                        "reason": { "type": "string" }, "message": { "type": "string" },
                        "lastTransitionTime": { "type": "string", "format": "date-time" },
                        "observedGeneration": { "type": "integer", "format": "int64" },
                    },
                },
            },
        },
    }))?;
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(schema) = schema {
            schema.properties.get_or_insert_default().insert("status".to_owned(), status.clone());
        }
        let writable = CustomResourceSubresourceStatus(json!({}));
        version.subresources = Some(CustomResourceSubresources { status: Some(writable), scale: None });
    }
    Ok(crd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::EntitySpec;

    #[test]
    fn a_name_that_has_one_part_is_that_part() {
        for (first, last, full) in [("Ada", "Lovelace", "Ada Lovelace"), ("Plato", "", "Plato"), ("", "", "")] {
            let spec = EntitySpec { firstname: first.into(), lastname: last.into(), ..EntitySpec::default() };
            assert_eq!(observed(&Entity::new("a", spec)).full_name, full);
        }
    }
}
