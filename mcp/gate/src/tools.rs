//! `tool-filter` and `tool-call-filter`: which tools clients see, and under which names (toolhive-runner §2.10, toolhive-0.63 §4.4).
//!
//! They stand outside of the parser, so that everything inside sees the names that the MCP server gives its tools.

mod call;
mod list;
mod names;

pub(crate) use call::{Call, ToolCallFilter};
pub(crate) use list::ToolFilter;
pub(crate) use names::ToolNames;
