//! The runner's binary between real clients and real servers, and between sockets that record every byte.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's own exception ends at functions marked as tests"
)]

mod audit;
mod authorization;
mod authorization_answers;
mod authorization_hints;
mod authorization_laws;
mod authorization_pdp;
mod aws_roles;
mod aws_roles_faults;
mod bad_input;
mod bearer_token;
mod bytes;
mod carriers;
mod check_login;
mod check_login_real;
mod client_credentials;
mod conformance;
mod diagnostics;
mod drain;
mod egress;
mod endpoints;
mod environment;
mod explain;
mod foreign_transport;
mod hidden_secrets;
mod identity_providers;
mod limits;
mod login;
mod login_faults;
mod login_streams;
mod one_reading;
mod outside_the_gate;
mod pairs;
mod place_shares;
mod places;
mod pods;
mod rate_limits;
mod raw_requests;
mod readiness;
mod recovery;
mod remote;
mod remote_sse;
mod remote_streams;
mod shadows;
mod shared_sessions;
mod shared_sessions_faults;
mod shares;
mod sse;
mod sse_front;
mod sse_silence;
mod stdio;
mod stdio_faults;
mod stdio_modern;
mod support;
mod telemetry;
mod telemetry_export;
mod token_exchange;
mod token_exchange_faults;
mod tool_filter;
mod warnings;
mod whole_bodies;
