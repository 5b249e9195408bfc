//! The plan of one workload: from what was observed to its children, its status and its events.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use mcp_api::names::{condition, reason};
use mcp_plan::{
    config::{Configs, UseCondition, Uses},
    guards::{CHANGED, InForce, MISSING, OUTDATED, ProxyContainer, Running, Standing, Verdict, belongs_to, judge},
    problem::{Problem, sentences},
    reference::Data,
    session_storage,
    settings::Settings,
    workload::{
        Child, ChildKind, ChildRef, Opened, Owner, Phase, Previous, Report,
        backend::{self, BACKEND_READY, Backend, Outlook, Unready},
        status::{self, State},
    },
};
use mcp_runconfig::{RATE_LIMIT, RunConfig};
use portcullis::controller::{ConditionStatus, Conditions, EventType, PlannedEvent, truncate_message};

use serde_json::Value;

use super::{Findings, GUARD_NOT_BUILT, Reach, Rendering, Workload, checks, network, refused_pods, target};

/// Condition: every guard that the spec asks for is enforced by every proxy pod that serves.
const GUARDS_ENFORCED: &str = "GuardsEnforced";

/// Condition: the pods have nothing that this installation refuses. Present only while they do.
const PODS_ALLOWED: &str = "PodsAllowed";

/// Condition: the operator can read the Secrets and ConfigMaps that are referred to. Present only while it cannot.
const REFERENCES_READABLE: &str = "ReferencesReadable";

/// Condition: the remote server answers the check of a proxy. Present only where proxies check it.
pub const REMOTE_REACHABLE: &str = "RemoteReachable";

/// Event: the proxy is taken away because of its guards, its options or its pods.
pub const PROXY_REMOVED: &str = "ProxyRemoved";

/// The time after which proxies are asked again whether their remote server answers.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// The end of a message about a block that stops nothing that runs.
const LEFT: &str = "; what runs already is left as it is";

/// Everything [`plan_workload`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, W> {
    /// The workload.
    pub workload: &'a W,
    /// The configurations that it refers to and that exist.
    pub configs: &'a Configs,
    /// Whether the API server has, or may have, one of them that the operator has not seen yet.
    pub unseen: bool,
    /// The Secrets and ConfigMaps that it and those refer to and that exist.
    pub data: &'a Data,
    /// Why one of those cannot be read, if one cannot.
    pub unreadable: Option<&'a str>,
    /// The sentence of validators that find something wrong with the workload, where the controller asks them.
    pub denied: Option<&'a str>,
    /// The live proxy Deployment.
    pub deployment: Option<&'a Deployment>,
    /// The workload's own children that exist.
    pub children: &'a BTreeSet<ChildRef>,
    /// The ways around its proxy that its live children have, where they have any.
    pub opened: &'a BTreeMap<ChildRef, Opened>,
    /// The pods of its proxy.
    pub pods: &'a [&'a Pod],
    /// Their proxy containers, by the names of the pods.
    pub containers: &'a BTreeMap<&'a str, &'a ProxyContainer>,
    /// The pods of what runs behind the proxy.
    pub backend_pods: &'a [&'a Pod],
    /// The word of its proxies on their remote server, where they check one.
    pub reach: Option<&'a Reach>,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// The time, for conditions that change.
    pub now: Timestamp,
}

/// The plan for one workload.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Objects to apply, in this order. What is neither here nor in `absent` is left as it is.
    pub children: Vec<Child>,
    /// Objects to delete where they exist and are ours, in this order, before the children are applied. One of them
    /// may be planned as a child again once it is gone.
    pub absent: Vec<ChildRef>,
    /// The desired status.
    pub report: Report,
    /// The events to publish: only what the last status does not say yet.
    pub events: Vec<PlannedEvent>,
    /// When to plan anew though nothing has changed.
    pub again: Option<Duration>,
}

/// Decides what should become of one workload.
///
/// A workload whose guards cannot all be put in place, or whose spec breaks a rule, gets nothing new. What runs of it
/// already goes on only if it has the guards that the spec asks for now.
pub fn plan_workload<W: Workload>(inputs: &Inputs<'_, W>) -> Plan {
    let Inputs { workload, data, settings, .. } = *inputs;
    let (metadata, previous) = (workload.meta(), workload.previous());
    if metadata.deletion_timestamp.is_some() {
        let ended = workload.backend().is_none_or(|backend| !inputs.children.contains(&backend));
        return deleted(workload, inputs.pods, ended, inputs.now);
    }

    // The workload as it is asked for, and the reasons against making it.
    let requested = workload.all_uses(settings);
    let target = target(workload, &requested);
    let uses = Uses::look_up(requested, target, inputs.configs, data, settings);
    let refused = refused_pods(workload, settings);
    let mut findings = findings(inputs, &uses, &refused);
    let rendered = (findings.blocks.is_empty() && W::NOT_BUILT.is_none())
        .then(|| workload.render(&Rendering { uses: &uses, data, settings }));

    // The proxy as it runs, and whether it may.
    let name = metadata.name.as_deref().unwrap_or_default();
    let (own, foreign): (Vec<&Pod>, Vec<&Pod>) = inputs.pods.iter().partition(|pod| belongs_to(pod, name));
    let running = Running {
        deployment: inputs.deployment,
        own: &own,
        serving: &status::serving(&own),
        ending: &status::ending(&own),
        foreign: &foreign,
        containers: inputs.containers,
        rendered: rendered.as_deref().and_then(pods_of_proxy),
        mirrors: &settings.image_mirrors,
    };
    let Verdict { standing, in_force, hashes } = judge(&uses, &running);
    // Nobody but a person takes such pods away, and what selects them would send calls past the guard.
    let closed = in_force.as_ref().filter(|force| force.by_hand).and_then(|_| workload.front());

    // The children that are made, and those that go.
    let is_rendered = rendered.is_some();
    let (children, absent) = match rendered {
        Some(rendered) => planned(inputs, rendered, standing, closed.as_ref()),
        None if W::NOT_BUILT.is_some() => (Vec::new(), Vec::new()),
        None => {
            let mut absent = must_not_go_on(inputs, &uses, standing, !refused.is_empty());
            let front = closed.clone().filter(|front| !absent.contains(front));
            absent.extend(front);
            (Vec::new(), absent)
        }
    };

    // The status.
    let backend = backend(inputs, &own);
    if let Some(Backend { outlook, reason, message, .. }) = &backend {
        findings.conditions.set(BACKEND_READY, *outlook == Outlook::Runs, reason, message.clone());
    }
    report_reach(inputs, &mut findings);
    network::check(workload, &children, inputs.children, inputs.opened, &mut findings);
    if let (Some(InForce { asked, reason, message, .. }), []) = (&in_force, uses.unbuilt()) {
        findings.conditions.set(GUARDS_ENFORCED, *asked, reason, message.clone());
    }
    let mut state = match (findings.blocks.first(), W::NOT_BUILT) {
        (None, Some(message)) => State { phase: Phase::Pending, message: message.to_owned(), ready: 0 },
        (Some(block), Some(unbuilt)) => {
            State { phase: Phase::Failed, message: format!("{}; {unbuilt}", W::refusal(block)), ready: 0 }
        }
        (Some(block), None) => {
            let left = if standing != Standing::NoProxy && absent.is_empty() { LEFT } else { "" };
            let message = format!("{}{left}", W::refusal(block));
            State { phase: Phase::Failed, message, ready: status::ready(&own) }
        }
        (None, None) => state(inputs, &own, backend.as_ref()),
    };
    if closed.is_some() && is_rendered {
        (state.phase, state.message) = (Phase::Failed, "the proxy has no Service".to_owned());
    }
    let mut stuck = None;
    if let Some(force) = in_force.filter(|force| force.by_hand || state.phase == Phase::Ready && !force.asked) {
        let broken = status::broken(&own);
        let why = match &broken {
            _ if ![OUTDATED, CHANGED].contains(&force.reason) => String::new(),
            Some(why) => format!(": new pods fail: {why}"),
            None => ": new pods are not ready yet".to_owned(),
        };
        state.message = format!("{}; {}{why}", state.message, force.message);
        stuck = broken.map(|_| state.message.clone());
    }
    let ready = state.phase == Phase::Ready;
    let [serves, not_yet] = W::READY;
    let ready_reason = match W::NOT_BUILT {
        Some(_) => reason::DEPLOYMENT_NOT_BUILT,
        None if ready => serves,
        None if !findings.blocks.is_empty() => reason::NOT_READY,
        None => not_yet,
    };
    findings.conditions.set(condition::READY, ready, ready_reason, state.message.clone());

    // The events, each told once.
    let Findings { conditions, blocks, .. } = findings;
    let failure = match blocks.first() {
        Some(block) => block.reason,
        None if closed.is_some() => MISSING,
        None => match &backend {
            Some(Backend { outlook: Outlook::Fails, reason, .. }) => reason,
            _ => "PodFailed",
        },
    };
    let mut events = events::<W>(&conditions, previous, &state, failure, stuck);
    if let (Some(denied), Some(block)) = (inputs.denied, blocks.first())
        && denied.contains(&block.message)
    {
        // An event of the validators says it.
        events.retain(|event| event.reason != block.reason);
    }
    if standing == Standing::Missing || !blocks.is_empty() {
        events.extend(removal_event(inputs, &absent, !refused.is_empty()));
    }
    if metadata.generation != previous.observed_generation {
        events.extend(workload.events());
    }

    let runs = closed.is_none() && (!children.is_empty() || (absent.is_empty() && inputs.deployment.is_some()));
    let report = Report {
        hashes,
        conditions: conditions.into_list(),
        message: truncate_message(state.message),
        observed_generation: metadata.generation,
        phase: state.phase,
        ready: state.ready,
        url: runs.then(|| workload.url()),
    };
    let ask_again = workload.checks_remote().map(|_| ASK_AGAIN);
    let again = backend.and_then(|backend| backend.again).into_iter().chain(ask_again).min();
    Plan { children, absent, report, events, again }
}

/// Plans a workload that is being deleted. It reads nothing else.
///
/// What closes the way around the proxy stays until what runs behind it has ended: `ended` says so.
pub fn deleted<W: Workload>(workload: &W, pods: &[&Pod], ended: bool, now: Timestamp) -> Plan {
    let (metadata, previous) = (workload.meta(), workload.previous());
    let mut conditions = Conditions::new(previous.conditions, metadata.generation, now);
    let message = format!("{} is being deleted", W::NOUN);
    conditions.set(condition::READY, ConditionStatus::False, W::READY[1], message.clone());
    let report = Report {
        conditions: conditions.into_list(),
        message,
        observed_generation: metadata.generation,
        phase: Phase::Terminating,
        ready: status::ready(pods),
        url: None,
        hashes: Vec::new(),
    };
    let mut absent = workload.all_children();
    absent.retain(|child| ended || child.kind != ChildKind::NetworkPolicy);
    Plan { children: Vec::new(), absent, report, events: Vec::new(), again: None }
}

/// Checks a workload before anything is made of it. The first that is said matters most.
fn findings<'a, W: Workload>(inputs: &Inputs<'a, W>, uses: &Uses, refused: &[Problem]) -> Findings<'a> {
    let workload = inputs.workload;
    let conditions = Conditions::new(workload.previous().conditions, workload.meta().generation, inputs.now);
    let mut findings = Findings { conditions, settings: inputs.settings, blocks: Vec::new() };
    if let Some(problem) = inputs.unreadable {
        // The rest may say of these what is not so.
        findings.block(REFERENCES_READABLE, "ReferenceNotReadable", problem.to_owned());
    }
    if let unbuilt @ [_, ..] = uses.unbuilt() {
        let message = format!(
            "{} cannot be enforced by this version, so the server gets no proxy; remove it to run without that guard",
            unbuilt.join(", ")
        );
        findings.block(GUARDS_ENFORCED, GUARD_NOT_BUILT, message);
    }
    // If one of several configurations of a kind cannot be used, it decides the condition of all.
    let (good, bad): (Vec<_>, Vec<_>) = uses.conditions().partition(|condition| condition.good);
    for UseCondition { type_, reason, message, .. } in good {
        findings.conditions.set(type_, ConditionStatus::True, reason, message.clone());
    }
    for condition in bad {
        findings.report_unusable(condition, inputs.unseen);
    }
    if !refused.is_empty() {
        findings.block(PODS_ALLOWED, "PodsRefused", sentences(refused));
    }
    workload.check(inputs.data, &mut findings);
    if W::NOT_BUILT.is_none() {
        let mut document = RunConfig::default();
        uses.render(&mut document);
        checks::claims(&document, &mut findings);
        checks::sessions(workload, replicas(inputs), &mut findings);
    }
    if let Some(problem) = inputs.denied {
        findings.block(condition::VALID, "ValidationFailed", problem.to_owned());
    }
    findings
}

/// The number of proxies that the spec wants, or whoever sets it on the Deployment.
fn replicas<W: Workload>(inputs: &Inputs<'_, W>) -> Option<i32> {
    inputs.workload.replicas().or_else(|| inputs.deployment?.spec.as_ref()?.replicas)
}

/// The word of the proxies on their remote server.
fn report_reach<W: Workload>(inputs: &Inputs<'_, W>, findings: &mut Findings<'_>) {
    let Some(reach) = inputs.reach else { return };
    let (reason, message) = match reach {
        Reach::Answers => ("Reached", "the remote server answers".to_owned()),
        Reach::Fails(error) => {
            let Owner { name, namespace, .. } = Owner::of(inputs.workload);
            let next = format!("kubectl logs -n {namespace} deployment/{name}");
            ("NotAnswering", format!("the proxy's check of the remote server fails: {error}: {next}"))
        }
    };
    findings.conditions.set(REMOTE_REACHABLE, *reach == Reach::Answers, reason, message);
}

/// The pods that the Deployment among `children` makes.
fn pods_of_proxy(children: &[Child]) -> Option<&Value> {
    let deployment = children.iter().find(|child| child.reference.kind == ChildKind::Deployment)?;
    deployment.object.pointer("/spec/template/spec")
}

/// The children but for `closed`, and what must not be beside them.
fn planned<W: Workload>(
    inputs: &Inputs<'_, W>,
    mut children: Vec<Child>,
    standing: Standing,
    closed: Option<&ChildRef>,
) -> (Vec<Child>, Vec<ChildRef>) {
    children.retain(|child| Some(&child.reference) != closed);
    // A rolling update keeps old pods until new ones are ready, however long that takes. Where the old ones have to go
    // first, the next plan makes the Deployment anew.
    if standing == Standing::Missing || wants_immediate_restart(inputs) {
        children.retain(|child| child.reference.kind != ChildKind::Deployment);
    }
    let is_wanted = |child: &ChildRef| children.iter().any(|wanted| wanted.reference == *child);
    let absent = inputs.workload.all_children().into_iter().filter(|child| !is_wanted(child)).collect();
    (children, absent)
}

/// Whether a restart is asked for that the live template does not tell of, and cannot wait for new pods to be ready.
fn wants_immediate_restart<W: Workload>(inputs: &Inputs<'_, W>) -> bool {
    let Some((deployment, restart)) = inputs.deployment.zip(inputs.workload.restart()) else { return false };
    let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let told = template.and_then(|metadata| metadata.annotations.as_ref()?.get(restart.annotation));
    restart.immediate && told != Some(&restart.at)
}

/// The verdict on what runs behind the proxy, where that exists.
fn backend<W: Workload>(inputs: &Inputs<'_, W>, proxies: &[&Pod]) -> Option<Backend> {
    let backend = inputs.workload.backend().filter(|backend| inputs.children.contains(backend))?;
    let namespace = inputs.workload.meta().namespace.as_deref().unwrap_or_default();
    let (start, port) = (status::start(proxies), inputs.workload.backend_port());
    let uses = inputs.workload.uses();
    let redis = session_storage::is_shared(&uses, inputs.settings) || uses.has(RATE_LIMIT);
    let unready = (status::ready(proxies) == 0).then_some(Unready { pods: proxies, start, port, redis });
    Some(backend::judge(namespace, &backend.name, inputs.backend_pods, unready, inputs.now))
}

fn state<W: Workload>(inputs: &Inputs<'_, W>, pods: &[&Pod], backend: Option<&Backend>) -> State {
    let missing = inputs.workload.backend().filter(|backend| !inputs.children.contains(backend));
    status::state(&status::Observed {
        noun: W::NOUN,
        failure: W::failure(),
        replicas: replicas(inputs),
        pods,
        missing_backend: missing.map(|missing| missing.kind.as_str()),
        backend,
        previous: inputs.deployment.map(|_| inputs.workload.previous()),
    })
}

/// The children of a workload that cannot be rendered, and that must be removed.
fn must_not_go_on<W: Workload>(
    inputs: &Inputs<'_, W>,
    uses: &Uses,
    standing: Standing,
    refused: bool,
) -> Vec<ChildRef> {
    match standing {
        _ if refused => all_that_runs(inputs.workload),
        // The configuration is about to be seen. The open proxy goes now; what is behind it, and leads to it, serves the next one.
        Standing::Missing if inputs.unseen => proxies(inputs.workload),
        Standing::Missing => all_that_runs(inputs.workload),
        // A proxy that an older version made may have such a text as an option, which opens it whatever its guards are.
        _ if inputs.workload.has_option_as_image() => proxies(inputs.workload),
        // A configuration that cannot be read may be unchanged: a passing error removes nothing that has its guards.
        _ if inputs.unreadable.is_some() || inputs.unseen => Vec::new(),
        Standing::NoProxy if !uses.can_be_enforced() => all_that_runs(inputs.workload),
        // The content that the proxy enforces is not the one that is asked for. What runs behind it does no wrong.
        Standing::Outdated => proxies(inputs.workload),
        Standing::NoProxy | Standing::Current => Vec::new(),
    }
}

/// Its proxies, and nothing that runs behind them.
fn proxies<W: Workload>(workload: &W) -> Vec<ChildRef> {
    workload.all_children().into_iter().filter(|child| child.kind == ChildKind::Deployment).collect()
}

/// All but the ServiceAccounts, which run nothing and may carry others' annotations (a cloud identity), and what closes the
/// way to pods that are still ending.
fn all_that_runs<W: Workload>(workload: &W) -> Vec<ChildRef> {
    let runs = |child: &ChildRef| !matches!(child.kind, ChildKind::ServiceAccount | ChildKind::NetworkPolicy);
    workload.all_children().into_iter().filter(runs).collect()
}

/// The news since the last status: a new phase, a new failure, a new warning.
fn events<W: Workload>(
    conditions: &Conditions<'_>,
    previous: Previous<'_>,
    state: &State,
    failure: &str,
    stuck: Option<String>,
) -> Vec<PlannedEvent> {
    let mut events = Vec::new();
    for new in conditions.changed() {
        let event = match (new.type_.as_str(), new.status.as_str()) {
            (condition::READY, "True") if previous.phase != Some(Phase::Ready) => {
                PlannedEvent::new(EventType::Normal, "Ready", &new.message)
            }
            (condition::READY, "True") => match &stuck {
                Some(why) => PlannedEvent::new(EventType::Warning, "RolloutFailed", why),
                None => continue,
            },
            (condition::READY, _) if state.phase == Phase::Failed => {
                PlannedEvent::new(EventType::Warning, failure, &new.message)
            }
            (condition::READY, _) if previous.phase != Some(state.phase) => {
                PlannedEvent::new(EventType::Normal, state.phase.as_str(), &new.message)
            }
            (REMOTE_REACHABLE, "True") => PlannedEvent::new(EventType::Normal, &new.reason, &new.message),
            (warning, _) if W::WARNINGS.contains(&warning) => {
                PlannedEvent::new(EventType::Warning, &new.reason, &new.message)
            }
            _ => continue,
        };
        events.push(event);
    }
    // That it is being created is worth a write of its own only where there is nothing else to say.
    if events.len() > 1 {
        events.retain(|event| event.reason != Phase::Pending.as_str());
    }
    events
}

/// A proxy that is taken away because of its guards, its options or its pods is worth an event of its own.
fn removal_event<W: Workload>(inputs: &Inputs<'_, W>, absent: &[ChildRef], refused: bool) -> Option<PlannedEvent> {
    let live = inputs.deployment.filter(|live| live.metadata.deletion_timestamp.is_none())?;
    let gone = ChildRef::new(ChildKind::Deployment, live.metadata.name.clone().unwrap_or_default());
    absent.contains(&gone).then(|| {
        let note = if refused {
            "the running proxy and server have what this operator refuses and are removed"
        } else if inputs.workload.has_option_as_image() {
            "the running proxy may have been started with spec.image as an option and is removed"
        } else {
            "the running proxy does not enforce the guards that the spec asks for and is removed"
        };
        PlannedEvent::new(EventType::Warning, PROXY_REMOVED, note)
    })
}
