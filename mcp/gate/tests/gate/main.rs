//! The request gate over real TLS sockets: chains around a recording backend, webhooks as HTTPS servers of this process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod bodies;
mod build;
mod chain;
mod denials;
mod endpoint;
mod explained;
mod filters;
mod headers;
mod origins;
mod outcomes;
mod rejudged;
mod reviews;
mod rotation;
mod selectors;
mod self_signed;
mod series;
mod shadows;
mod support;
mod tried_policies;
mod vectors;
