//! The controller for entities: it writes the full name into the status.
//!
//! The status has conditions for `run --webhooks off`: `Valid` then holds the verdict of the webhooks.

use portcullis::controller::{Action, Controller, ControllerError, Reconcile};

use crate::{EntityStatus, v3::Entity};

/// The status of an entity: a function without IO.
fn observed(entity: &Entity) -> EntityStatus {
    let names = [entity.spec.firstname.trim(), entity.spec.lastname.trim()];
    EntityStatus { full_name: Some(names.join(" ").trim().to_owned()), conditions: None }
}

/// Brings an entity's status up to date.
///
/// # Errors
/// When the API server refuses the status.
pub async fn reconcile(cx: Reconcile<Entity>) -> Result<Action, ControllerError> {
    cx.apply_status(&observed(&cx.object)).await?;
    Ok(Action::await_change())
}

/// The controller; its rights follow from what it watches.
pub fn controller() -> Controller<Entity> {
    Controller::new("entities")
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
