//! The webhooks for entities.
//!
//! The handlers are for the stored version only. Whatever version a user writes, the API server converts the entity
//! before it calls them, through the operator's own conversion.

use std::sync::Arc;

use portcullis::webhooks::{Context, FailurePolicy, Mutate, Mutation, Validate, Verdict, Webhooks};

use crate::conversion::conversion;
use crate::v3::Entity;

/// All webhooks of the operator. Routes, manifests and rights follow from this value.
pub fn webhooks() -> Webhooks {
    Webhooks::new()
        .validate(Validate::<Entity>::new("username").on_create(create).on_update(update))
        .mutate(Mutate::<Entity>::new("overwrite").on_create(overwrite))
        .mutate(Mutate::<Entity>::new("immutable").on_update(warn).failure_policy(FailurePolicy::Ignore))
        .convert(conversion())
}

/// Refuses the user name `forbidden`.
async fn create(new: Arc<Entity>, _: Context) -> Verdict {
    if new.spec.username == "forbidden" {
        return Verdict::deny("name may not be 'forbidden'.").code(422);
    }
    Verdict::allow()
}

/// Refuses a change to it as well, with another code.
async fn update(_: Arc<Entity>, new: Arc<Entity>, cx: Context) -> Verdict {
    create(new, cx).await.code(400)
}

/// Replaces the user name `overwrite`.
async fn overwrite(mut new: Entity, _: Context) -> Mutation<Entity> {
    if new.spec.username != "overwrite" {
        return Mutation::unchanged();
    }
    new.spec.username = "random overwritten".into();
    Mutation::modified(new)
}

/// Warns of a change that the schema refuses. It mutates nothing, and is a mutating webhook because the API server
/// evaluates the rules of the schema before it calls validating ones.
async fn warn(old: Arc<Entity>, new: Entity, _: Context) -> Mutation<Entity> {
    let unchanged = Mutation::unchanged();
    if old.spec.birthday.is_some() && new.spec.birthday != old.spec.birthday {
        return unchanged.warn("spec.birthday is immutable: the API server refuses this change");
    }
    unchanged
}
