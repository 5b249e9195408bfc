//! VirtualMCPServer: the tools of a group of MCP servers, offered as one server.
//!
//! This version checks what a virtual server refers to and makes nothing for it; its status says both.

mod checks;
mod references;
mod rules;

use mcp_api::{
    names::{condition, label},
    v1beta1::{VirtualMCPServer, VirtualMCPServerStatus, VirtualServerPhase, virtual_server::IncomingAuthType},
};
use mcp_plan::{
    authorization,
    config::{Behind, Requested},
    problem::Problem,
    reference::{Data, Reference},
    settings::Settings,
    workload::{Child, ChildKind, ChildRef, Owner, Phase, Previous, Report},
};

use crate::{
    subject::Subject,
    workload::{Findings, Rendering, Restart, Workload},
};

/// The port of the Service.
const PORT: u16 = 4483;

impl Subject for VirtualMCPServer {
    /// It may go at once: what will be made for it is the garbage collector's.
    const FINALIZER: Option<&'static str> = None;
    const RESOURCES: [&'static str; 3] =
        ["virtualmcpservers", "virtualmcpservers/status", "virtualmcpservers/finalizers"];

    fn references(&self) -> Vec<Reference> {
        // References of every type count: a named configuration must not be deleted while its author corrects the type.
        let uses = references::login(&self.spec).into_iter().chain(references::others(&self.spec));
        uses.flat_map(|used| used.references())
            .map(|reference| Reference { while_missing: references::MISSING, ..reference })
            .chain(references::unbuilt(self).into_iter().map(|(_, reference)| reference))
            .chain(references::policies(self).map(|policies| policies.reference()))
            .collect()
    }

    fn problems(&self) -> Vec<Problem> {
        rules::problems(&self.spec)
    }

    fn change_problems(&self, old: Option<&Self>) -> Vec<Problem> {
        let old = old.and_then(|old| old.spec.incoming_auth.authz_config.as_ref());
        let problems = authorization::change_problems(old, self.spec.incoming_auth.authz_config.as_ref(), None);
        let here = |Problem { field, message }: Problem| Problem {
            field: field.replacen("spec.", "spec.incomingAuth.", 1),
            message,
        };
        problems.into_iter().map(here).collect()
    }

    fn warnings(&self, _: &Settings) -> Vec<String> {
        Self::NOT_BUILT.map(str::to_owned).into_iter().chain(rules::overwritten(&self.spec)).collect()
    }
}

impl Workload for VirtualMCPServer {
    const APP: &'static str = label::APP_VIRTUAL_MCP_SERVER;
    const BEHIND: Behind = Behind::Group;
    const NOUN: &'static str = "virtual MCP server";
    const NOT_BUILT: Option<&'static str> =
        Some("this version checks what a VirtualMCPServer refers to and makes no Deployment for it: nothing serves");
    const WARNINGS: &'static [&'static str] = &[condition::AUTH_CONFIGURED];
    const CHILDREN: &'static [ChildKind] = &[];

    fn uses(&self) -> Requested {
        let login = references::login(&self.spec).filter(|_| self.spec.incoming_auth.kind == IncomingAuthType::Oidc);
        Requested { uses: login.into_iter().chain(references::others(&self.spec)).collect(), ..Requested::default() }
    }

    fn previous(&self) -> Previous<'_> {
        let Some(status) = &self.status else { return Previous::default() };
        Previous {
            conditions: status.conditions.as_ref(),
            phase: status.phase.map(|phase| match phase {
                VirtualServerPhase::Pending => Phase::Pending,
                VirtualServerPhase::Ready | VirtualServerPhase::Degraded => Phase::Ready,
                VirtualServerPhase::Failed => Phase::Failed,
            }),
            message: status.message.as_deref(),
            observed_generation: status.observed_generation,
        }
    }

    fn replicas(&self) -> Option<i32> {
        self.spec.replicas
    }

    fn restart(&self) -> Option<Restart> {
        None
    }

    fn check(&self, data: &Data, findings: &mut Findings<'_>) {
        checks::check(self, data, findings);
    }

    fn render(&self, _: &Rendering<'_>) -> Vec<Child> {
        Vec::new()
    }

    fn all_children(&self) -> Vec<ChildRef> {
        Vec::new()
    }

    fn parents(_: &ChildRef) -> Vec<&str> {
        Vec::new()
    }

    fn front(&self) -> Option<ChildRef> {
        None
    }

    fn backend(&self) -> Option<ChildRef> {
        None
    }

    fn url(&self) -> String {
        let Owner { name, namespace, .. } = Owner::of(self);
        format!("http://vmcp-{name}.{namespace}.svc.cluster.local:{PORT}/mcp")
    }

    fn status_of(report: Report) -> VirtualMCPServerStatus {
        VirtualMCPServerStatus {
            authz_config_hash: report.hash(references::POLICIES),
            oidc_config_hash: report.hash(references::LOGIN),
            telemetry_config_hash: report.hash(references::TELEMETRY),
            conditions: report.conditions,
            message: Some(report.message),
            observed_generation: report.observed_generation,
            phase: Some(match report.phase {
                Phase::Ready => VirtualServerPhase::Ready,
                Phase::Failed => VirtualServerPhase::Failed,
                Phase::Pending | Phase::Stopped | Phase::Terminating => VirtualServerPhase::Pending,
            }),
            url: report.url,
            ..VirtualMCPServerStatus::default()
        }
    }
}
