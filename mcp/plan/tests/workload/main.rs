//! What workloads are made of, one module per concern. No IO.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod backend;
mod image;
mod pod_template;
mod proxy_container;
mod proxy_template;
mod quantity;
mod uses;
