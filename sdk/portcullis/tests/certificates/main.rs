//! Certificates that look after themselves, against a real API server and with exactly the rights that are generated.

#![allow(clippy::unwrap_used, clippy::panic)]

mod crds;
mod damage;
mod fights;
mod fixture;
mod publish;
mod store;
