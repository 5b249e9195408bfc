//! What the operator does with entities that are stored: it says in the status what somebody is called.
//!
//! Its conditions are there for `run --webhooks off`: what the webhooks would have said is then said in `Valid`.

use portcullis::controller::{Action, Controller, ControllerError, Reconcile};

use crate::{EntityStatus, v3::Entity};

/// What should be, from what is.
fn observed(entity: &Entity) -> EntityStatus {
    let names = [entity.spec.firstname.trim(), entity.spec.lastname.trim()];
    EntityStatus { full_name: Some(names.join(" ").trim().to_owned()), conditions: None }
}

/// Brings an entity's status up to date.
///
/// # Errors
/// When the API server does not take it.
pub async fn reconcile(cx: Reconcile<Entity>) -> Result<Action, ControllerError> {
    cx.status(&observed(&cx.object)).await?;
    Ok(Action::await_change())
}

/// What it watches; what it may do follows from that.
pub fn controller() -> Controller<Entity> {
    Controller::named("entities")
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
