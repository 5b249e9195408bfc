//! Certificates that look after themselves, against a real API server and with exactly the rights that are generated.

#![allow(clippy::unwrap_used, clippy::panic)]

mod bundles;
mod crds;
mod damage;
mod fights;
mod fixture;
mod issues;
mod log;
mod phases;
mod publish;
mod refusals;
mod rotation;
mod store;
