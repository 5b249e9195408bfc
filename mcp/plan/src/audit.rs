//! `spec.audit`: a line about each request.

use std::sync::Arc;

use mcp_api::v1beta1::Audit;
use mcp_runconfig::{AUDIT, AuditConfig, RunConfig};

use crate::{
    config::{Config, ConfigUse, Role, Target, Terms},
    digest::short_digest,
};

/// A line about each request, as ToolHive's operator asks for it; there is nothing to choose.
#[derive(Debug)]
struct Lines;

/// The use that a spec makes of it; none where it is absent or turned off.
pub fn audit(spec: Option<&Audit>) -> Option<ConfigUse> {
    spec.filter(|audit| audit.enabled)
        .map(|_| ConfigUse::inline(Role::Setting, "spec.audit", Arc::new(Lines), &[AUDIT]))
}

impl Config for Lines {
    fn hash(&self) -> String {
        short_digest(&AuditConfig::default())
    }

    fn render(&self, _: &Target, _: &Terms, document: &mut RunConfig) {
        document.audit_config = Some(AuditConfig::default());
    }
}
