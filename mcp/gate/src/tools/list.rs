//! `tool-filter`: lists of tools in answers.

use std::collections::HashSet;
use std::future::ready;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, ListFilter, Middleware, Next};
use mcp_runconfig::{TOOL_FILTER, ToolFilterParameters};
use mcp_wire::{List, ListKind};

use super::names::ToolNames;

/// Every client sees the same tools.
const FILTER: ListFilter =
    ListFilter { middleware: TOOL_FILTER, kinds: &[ListKind::Tools], cost: 0, is_private: false };

/// Leaves the tools that clients may see in the answers of the MCP server, under the names that clients see.
pub(crate) struct ToolFilter(Arc<ToolNames>);

impl ToolFilter {
    pub(crate) fn new(parameters: ToolFilterParameters, context: &BuildContext) -> Result<Self, BuildError> {
        Ok(Self(Arc::new(ToolNames::build(parameters, context)?)))
    }
}

impl Middleware for ToolFilter {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let (context, names) = (next.context(), Arc::clone(&self.0));
        context.filter_lists(FILTER, move |list| ready(names.present(list)));
        async move {
            // For the id: an answer that is withheld must reach the call that it answers.
            match context.read(request).await {
                Ok(request) => next.call(request).await,
                Err(refusal) => refusal,
            }
        }
        .boxed()
    }

    fn reads_messages(&self) -> bool {
        true
    }

    fn judges_messages(&self) -> bool {
        true
    }
}

impl ToolNames {
    /// The list as clients see it.
    pub(crate) fn present(&self, mut list: List) -> Result<List, &'static str> {
        let mut shown = HashSet::new();
        list.retain(|tool| {
            let name = tool.name().to_owned();
            let Some(presented) = self.presented(&name) else { return Ok(false) };
            if presented != name {
                tool.rename(presented)?;
            }
            if let Some(description) = self.description(&name) {
                tool.describe(description)?;
            }
            if shown.insert(presented.to_owned()) { Ok(true) } else { Err("it lists two tools of one name") }
        })?;
        Ok(list)
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
