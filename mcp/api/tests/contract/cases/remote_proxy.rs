use serde_json::json;

use super::{Block, Case, shared};

pub(super) fn cases() -> Vec<Case> {
    let spec = Block::spec("MCPRemoteProxy");
    let mut cases = vec![spec.case(
        ".remoteUrl",
        "^https?://",
        json!({"remoteUrl": "http://mcp.example"}),
        json!({"remoteUrl": "mcp.example"}),
    )];
    cases.extend(shared::authz(&spec));
    cases.extend(shared::session_storage(&spec));
    cases
}
