use super::{Block, Case, shared};

pub(super) fn cases() -> Vec<Case> {
    let spec = Block::spec("MCPRemoteProxy");
    let mut cases = shared::authz(&spec);
    cases.extend(shared::session_storage(&spec));
    cases
}
