//! The common part of all workload kinds: a proxy that clients call, the backend behind it, and one status for both.
//!
//! A kind says what is particular to it ([`Workload`]): its configurations, its rules, its children. From that there is one
//! [plan](plan_workload) and one controller for all of them. Unlike [`mcp_plan::workload`],
//! which has what children are made of and knows no trait, this decides which of them there are.

pub mod checks;
mod network;
mod plan;
mod refused_pods;

use std::borrow::Cow;

use k8s_openapi::api::rbac::v1::PolicyRule;
use mcp_api::names::reason;
use mcp_plan::{
    config::{Behind, ConfigUse, Requested, Role, Target, UseCondition, Uses},
    reference::{Data, Reference},
    session_storage,
    settings::Settings,
    workload::{Child, ChildKind, ChildRef, Owner, Previous, Report, detached::Attached},
};
use mcp_runconfig::chain::AUTH;
use portcullis::controller::{ConditionStatus, Conditions, PlannedEvent};

use crate::subject::Subject;

pub use network::NETWORK_RESTRICTED;
pub use plan::{Inputs, PROXY_REMOVED, Plan, REMOTE_REACHABLE, deleted, plan_workload};
pub use refused_pods::refused_pods;

/// Reason: a guard that the spec asks for is of a kind that this version does not have.
pub const GUARD_NOT_BUILT: &str = "GuardNotBuilt";

/// A kind of workload.
pub trait Workload: Subject {
    /// The kind in lower case: the label `app` of its proxies.
    const APP: &'static str;

    /// The servers behind it.
    const BEHIND: Behind = Behind::Container;

    /// The name of a workload in messages.
    const NOUN: &'static str;

    /// The reasons of its condition `Ready`: while that is true, and while it is false.
    const READY: [&'static str; 2] = [reason::READY, reason::NOT_READY];

    /// Why this version makes no children for the kind, where it makes none: a sentence. Its guards and rules are checked
    /// all the same.
    const NOT_BUILT: Option<&'static str> = None;

    /// Types of conditions whose news are warning events.
    const WARNINGS: &'static [&'static str];

    /// The kinds of children that it may have: its controller's account may write these and no others.
    const CHILDREN: &'static [ChildKind];

    /// The kinds of [`CHILDREN`](Self::CHILDREN) that ToolHive made and this operator only deletes.
    const OBSOLETE: &'static [ChildKind] = &[];

    /// The grants of the Roles among its children. A right can only be granted by an account that holds it, so the
    /// controller's account does.
    fn granted() -> Vec<PolicyRule> {
        Vec::new()
    }

    /// The rights of its controller beside those of every kind.
    fn rights() -> Vec<PolicyRule> {
        Vec::new()
    }

    /// The container that its proxy attaches to, if it does.
    fn attached(&self) -> Option<Attached> {
        None
    }

    /// The status message about a pod that will never serve, before the reason.
    fn failure() -> String {
        format!("{} pod failed", Self::NOUN)
    }

    /// The status message about the reason why it is not rendered.
    fn refusal(block: &Block) -> String {
        block.message.clone()
    }

    /// Whether the image of its spec, which is an argument of the proxy, would be an option there.
    fn has_option_as_image(&self) -> bool {
        false
    }

    /// The configurations that its spec asks for.
    fn uses(&self) -> Requested;

    /// The configurations that its proxy has: those, and the operator's default Redis where its sessions are left to that.
    fn all_uses(&self, settings: &Settings) -> Requested {
        let mut uses = self.uses();
        uses.uses.extend(session_storage::inherited(&uses, settings));
        uses
    }

    /// Everything that its plan looks at: its references, and those of the operator's default Redis where it uses that.
    fn all_references(&self, settings: &Settings) -> Vec<Reference> {
        let inherited = session_storage::inherited(&self.uses(), settings);
        self.references().into_iter().chain(inherited.iter().flat_map(ConfigUse::references)).collect()
    }

    /// The last status.
    fn previous(&self) -> Previous<'_>;

    /// The desired number of proxies; none leaves the number to an autoscaler, or 1.
    fn replicas(&self) -> Option<i32>;

    /// The restart that its author asked for last.
    fn restart(&self) -> Option<Restart>;

    /// Checks what is particular to the kind, before anything is rendered.
    fn check(&self, data: &Data, findings: &mut Findings<'_>);

    /// The children in the order of their needs.
    fn render(&self, rendering: &Rendering<'_>) -> Vec<Child>;

    /// Everything that may be made for it, what serves first, so that a guard that is missing is closed at once.
    fn all_children(&self) -> Vec<ChildRef>;

    /// The names of the workloads that may have this child: the other direction of
    /// [`all_children`](Self::all_children).
    fn parents(child: &ChildRef) -> Vec<&str>;

    /// The Service by which clients reach the proxy, where there is a proxy.
    fn front(&self) -> Option<ChildRef>;

    /// The backend behind the proxy, where that is a child.
    fn backend(&self) -> Option<ChildRef>;

    /// The port on which its proxy asks what runs behind it, where it asks over the network.
    fn backend_port(&self) -> Option<i32> {
        None
    }

    /// The headers that its proxy adds to requests.
    fn added_headers(&self) -> Vec<String> {
        Vec::new()
    }

    /// The port of its proxy, where that checks a remote server.
    fn checks_remote(&self) -> Option<u16> {
        None
    }

    /// Whether the server behind it is called in clear text.
    fn is_clear_text(&self) -> bool {
        false
    }

    /// Where clients inside the cluster reach it.
    fn url(&self) -> String;

    /// Events beside those that its conditions make.
    fn events(&self) -> Vec<PlannedEvent> {
        Vec::new()
    }

    /// The status of the kind.
    fn status_of(report: Report) -> Self::Status;
}

/// Whether a remote server answers the checks of its proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It answers at least one of them.
    Answers,
    /// It answers none of them, for this reason.
    Fails(String),
}

/// A restart of the proxy's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The annotation of the pod template that tells of it.
    pub annotation: &'static str,
    /// Its value.
    pub at: String,
    /// Whether the old pods go before the new ones come.
    pub immediate: bool,
}

/// The findings of checks: each is a condition, and one that prevents rendering is a block as well.
#[derive(Debug)]
pub struct Findings<'a> {
    /// The conditions of the status under construction.
    pub conditions: Conditions<'a>,
    /// The operator's settings.
    pub settings: &'a Settings,
    blocks: Vec<Block>,
}

/// A reason why a workload is not rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The kind of the configuration that cannot be used, where one cannot.
    pub config: Option<Cow<'static, str>>,
    /// The type of the condition that says it.
    pub condition: &'static str,
    /// One word for it.
    pub reason: &'static str,
    /// A sentence for the author.
    pub message: String,
}

/// The input of children, beside the workload itself.
#[derive(Clone, Copy, Debug)]
pub struct Rendering<'a> {
    /// The configurations, all of them usable.
    pub uses: &'a Uses,
    /// The Secrets and ConfigMaps that it and its configurations refer to.
    pub data: &'a Data,
    /// The operator's settings.
    pub settings: &'a Settings,
}

/// The workload, for the configurations that it asks for.
fn target<W: Workload>(workload: &W, requested: &Requested) -> Target {
    let Owner { name, namespace, .. } = Owner::of(workload);
    Target {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        url: workload.url(),
        behind: W::BEHIND,
        in_clear_text: workload.is_clear_text(),
        has_login: requested.has(AUTH),
        added_headers: workload.added_headers(),
        in_group: workload.references().iter().any(|it| it.field == "spec.groupRef"),
    }
}

impl Findings<'_> {
    /// A condition that is `False` and keeps the workload from being rendered.
    pub fn block(&mut self, condition: &'static str, reason: &'static str, message: String) {
        self.push(Block { config: None, condition, reason, message });
    }

    /// The condition of a configuration that cannot be used. One that is tried keeps nothing from being rendered, unless it may exist `unseen`:
    /// the proxy would roll twice.
    fn report_unusable(&mut self, it: &UseCondition, unseen: bool) {
        let (condition, reason, message) = (it.type_, it.reason, it.message.clone());
        if it.role == Role::Trial && !unseen {
            self.conditions.set(condition, ConditionStatus::False, reason, message);
        } else {
            self.push(Block { config: it.kind.clone(), condition, reason, message });
        }
    }

    /// The part that this condition keeps from being rendered, if any.
    pub fn blocked_by(&self, condition: &str) -> Option<&Block> {
        self.blocks.iter().find(|block| block.condition == condition)
    }

    fn push(&mut self, block: Block) {
        self.conditions.set(block.condition, ConditionStatus::False, block.reason, block.message.clone());
        self.blocks.push(block);
    }
}
