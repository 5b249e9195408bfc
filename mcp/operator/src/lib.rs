//! The operator of the MCP platform: plans the children of MCPServers and applies them.
