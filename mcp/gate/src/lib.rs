//! The middleware of the request gate but for `auth`: each a module, registered by its type name.
//!
//! [`registry`] builds the chain of a RunConfig's `middleware_configs`, the first entry outermost, and refuses to start with anything
//! that it does not know: a server must never run without the guard its author asked for. Bytes that no middleware changed leave as they
//! came.
//!
//! ```
//! assert!(mcp_gate::registry().kinds().any(|kind| kind == mcp_runconfig::chain::PARSER));
//! ```

mod bodylimit;
mod header_forward;
mod origin;
mod parser;
mod recovery;
mod tools;
mod usage_metrics;
mod webhook;

use mcp_middleware::Registry;
use mcp_runconfig::{TOOL_CALL_FILTER, TOOL_FILTER, chain, webhook as webhooks};

/// The registry of all of them; a foreign middleware is added with [`Registry::register`].
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry
        .register(chain::ORIGIN, |parameters, context| Ok(origin::Origin::new(parameters, context)))
        .register(chain::BODY_LIMIT, |parameters, _| Ok(bodylimit::BodyLimit::new(parameters)))
        .register(TOOL_FILTER, tools::ToolFilter::new)
        .register(TOOL_CALL_FILTER, tools::ToolCallFilter::new)
        .register(chain::PARSER, |parameters, _| Ok(parser::Parser::new(parameters)))
        .register(webhooks::MUTATING, webhook::Mutating::new)
        .register(webhooks::VALIDATING, webhook::Validating::new)
        .register(chain::USAGE_METRICS, |parameters, _| Ok(usage_metrics::UsageMetrics::new(parameters)))
        .register(chain::HEADER_FORWARD, header_forward::HeaderForward::new)
        .register(chain::RECOVERY, |parameters, _| Ok(recovery::Recovery::new(parameters)));
    registry
}
