//! The proxy beside one MCP server.
