//! The middleware of the request gate but for `auth`, `telemetry` and `ratelimit`: each a module, registered by its type name.
//!
//! [`registry`] builds the chain of a RunConfig's `middleware_configs`, the first entry outermost, and refuses to start with anything
//! that it does not know: a server must never run without the guard its author asked for. Bytes that no middleware changed leave as they
//! came.
//!
//! ```
//! assert!(mcp_gate::registry().kinds().any(|kind| kind == mcp_runconfig::chain::PARSER));
//! ```

mod audit;
mod authorization;
mod bodylimit;
pub mod explain;
mod header_forward;
mod origin;
mod parser;
mod recovery;
mod tools;
mod usage_metrics;
mod webhook;

use mcp_middleware::Registry;
use mcp_runconfig::{
    AUDIT, AUTHORIZATION, SHADOW_AUTHORIZATION, TOOL_CALL_FILTER, TOOL_FILTER, chain, webhook as webhooks,
};

/// The registry of all of them; a foreign middleware is added with [`Registry::register`].
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry
        .register(chain::ORIGIN, |parameters, context| async move { Ok(origin::Origin::new(parameters, &context)) })
        .register(AUDIT, audit::Audit::new)
        .register(chain::BODY_LIMIT, |parameters, _| async move { Ok(bodylimit::BodyLimit::new(parameters)) })
        .register(TOOL_FILTER, |parameters, context| async move { tools::ToolFilter::new(parameters, &context) })
        .register(
            TOOL_CALL_FILTER,
            |parameters, context| async move { tools::ToolCallFilter::new(parameters, &context) },
        )
        .register(chain::PARSER, |parameters, _| async move { Ok(parser::Parser::new(parameters)) })
        .register(
            webhooks::MUTATING,
            |parameters, context| async move { webhook::Webhooks::mutating(parameters, &context) },
        )
        .register(webhooks::VALIDATING, |parameters, context| async move {
            webhook::Webhooks::validating(parameters, &context)
        })
        .register(chain::USAGE_METRICS, |parameters, _| async move { Ok(usage_metrics::UsageMetrics::new(parameters)) })
        .register(AUTHORIZATION, |parameters, context| async move {
            authorization::Authorization::new(parameters, &context)
        })
        .register(
            SHADOW_AUTHORIZATION,
            |parameters, context| async move { authorization::Trial::new(parameters, &context) },
        )
        .register(chain::HEADER_FORWARD, |parameters, context| async move {
            header_forward::HeaderForward::new(parameters, &context)
        })
        .register(chain::RECOVERY, |parameters, _| async move { Ok(recovery::Recovery::new(parameters)) });
    registry
}
