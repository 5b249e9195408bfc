//! Fields that this version does not act on.

use mcp_api::v1beta1::MCPServerSpec;

use crate::workload::checks;

/// The fields that are set and change nothing in this version. None of them guards anything.
pub(super) fn unsupported(spec: &MCPServerSpec) -> Vec<&'static str> {
    checks::set_fields(&[("spec.groupRef", spec.group_ref.is_some())])
}
