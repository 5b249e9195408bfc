//! MCP transports: streamable HTTP and stdio, sessions, the transparent proxy.
