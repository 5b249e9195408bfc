//! The webhooks for entities.
//!
//! The handlers are for the stored version only. Whatever version a user writes, the API server converts the entity
//! before it calls them, through the operator's own conversion.

use std::sync::Arc;

use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks, immutable_fields};

use crate::conversion::conversion;
use crate::crd;
use crate::v3::Entity;

/// All webhooks of the operator. Routes, manifests and rights follow from this value.
///
/// # Errors
/// When the versions are not of one kind, or no field of them is immutable.
pub fn webhooks() -> anyhow::Result<Webhooks> {
    Ok(Webhooks::new()
        .validate(Validate::<Entity>::named("username").on_create(create).on_update(update))
        .mutate(Mutate::<Entity>::named("overwrite").on_create(overwrite))
        .mutate(immutable_fields("immutable", &crd()?)?)
        .convert(conversion()))
}

/// Refuses the user name `forbidden`.
async fn create(new: Arc<Entity>, _: Context) -> Verdict {
    if new.spec.username == "forbidden" {
        return Verdict::deny("name may not be 'forbidden'.").code(422);
    }
    Verdict::allow()
}

/// Refuses a change to it as well. A denial without a code is a 400.
async fn update(_old: Arc<Entity>, new: Arc<Entity>, _: Context) -> Verdict {
    if new.spec.username == "forbidden" {
        return Verdict::deny("name may not be 'forbidden'.");
    }
    Verdict::allow()
}

/// Replaces the user name `overwrite`.
async fn overwrite(mut new: Entity, _: Context) -> Mutation<Entity> {
    if new.spec.username != "overwrite" {
        return Mutation::unchanged();
    }
    new.spec.username = "random overwritten".into();
    Mutation::modified(new)
}
