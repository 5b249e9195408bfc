//! What the API server asks the operator about entities.
//!
//! The handlers know the stored version only. Whatever version a user writes, the API server converts the entity before
//! it asks, through the operator's own conversion.

use std::sync::Arc;

use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks, immutable_fields};

use crate::conversion::conversion;
use crate::crd;
use crate::v3::Entity;

/// All of them. Routes, manifests and rights follow from this value.
///
/// # Errors
/// When the versions are not of one kind, or nothing in them is immutable.
pub fn webhooks() -> anyhow::Result<Webhooks> {
    Ok(Webhooks::new()
        .validate(Validate::<Entity>::named("username").on_create(create).on_update(update))
        .mutate(Mutate::<Entity>::named("overwrite").on_create(overwrite))
        .mutate(immutable_fields("immutable", &crd()?)?)
        .convert(conversion()))
}

/// Nobody is called `forbidden`.
async fn create(new: Arc<Entity>, _: Context) -> Verdict {
    if new.spec.username == "forbidden" {
        return Verdict::deny("name may not be 'forbidden'.").code(422);
    }
    Verdict::allow()
}

/// Nor does anybody become it. A denial without a code is a 400.
async fn update(_old: Arc<Entity>, new: Arc<Entity>, _: Context) -> Verdict {
    if new.spec.username == "forbidden" {
        return Verdict::deny("name may not be 'forbidden'.");
    }
    Verdict::allow()
}

/// Who wants to be overwritten, is.
async fn overwrite(mut new: Entity, _: Context) -> Mutation<Entity> {
    if new.spec.username != "overwrite" {
        return Mutation::unchanged();
    }
    new.spec.username = "random overwritten".into();
    Mutation::modified(new)
}
