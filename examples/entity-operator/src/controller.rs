//! What the operator does with entities that are stored: it says in the status what somebody is called.
//!
//! Its conditions are there for `run --webhooks off`: what the webhooks would have said is then said in `Valid`.

use portcullis::controller::{Controller, ControllerError, Next, Pass};
use portcullis::manifest::Grant;
use portcullis::operator::Runtime;

use crate::{EntityStatus, v3::Entity};

/// What should be, from what is.
fn observed(entity: &Entity) -> EntityStatus {
    let names = [entity.spec.firstname.trim(), entity.spec.lastname.trim()];
    EntityStatus { full_name: Some(names.join(" ").trim().to_owned()), conditions: None }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::EntitySpec;

    #[test]
    fn a_name_that_has_one_part_is_that_part() {
        for (first, last, full) in [("Ada", "Lovelace", "Ada Lovelace"), ("Plato", "", "Plato"), ("", "", "")] {
            let spec = EntitySpec { firstname: first.into(), lastname: last.into(), ..EntitySpec::default() };
            assert_eq!(observed(&Entity::new("a", spec)).full_name.as_deref(), Some(full));
        }
    }
}
