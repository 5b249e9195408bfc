//! The tables of Dynamo's own tests as data (`cases/`): each row by the validator alone, and as a user meets it, behind a real
//! API server, in the words of whichever stage answers first: the schema, its CEL rules, or the webhook.

mod alone;
mod answers;
pub(crate) mod api;
pub(crate) mod cases;
mod configuration;
