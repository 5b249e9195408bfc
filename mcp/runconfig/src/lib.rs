//! The RunConfig document an MCP proxy is started with, and the wire types of request webhooks.
