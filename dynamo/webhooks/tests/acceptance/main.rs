//! The tables of Dynamo's own tests as data (`cases/`): each row by the validator alone, and as a user meets it, behind a real
//! API server, in the words of whichever stage answers first: the schema, its CEL rules, or the webhook.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod alone;
mod answers;
mod api;
mod cases;
mod configuration;
