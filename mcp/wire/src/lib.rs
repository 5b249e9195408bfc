//! JSON-RPC envelopes on raw bytes, MCP revisions and headers, SSE frames. No IO.
