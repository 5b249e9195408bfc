//! The guards of a workload: what its spec asks to stand between a caller and the MCP server, and what stands there.
//!
//! A guard is a configuration without which a workload must not run. The guards that a proxy was made with are written
//! on its pod template ([`GUARDS`]), where users' overrides cannot reach, so every pod says which guards it enforces.
//! One function compares what is asked for with what is there ([`judge`]): where a guard is missing, old pods go before
//! new ones come; where one has changed or is not asked for any more, the Deployment rolls. The status says more of the
//! pods that serve: that their proxy container is the one that was made ([`ProxyContainer`]).

mod container;
mod live;

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, PodSpec},
};
use mcp_api::names::annotation::GUARDS;
use serde::Deserialize as _;
use serde_json::Value;

use crate::config::{Role, State, Used, Uses};

pub use container::{CONTAINER, OWN_FIELDS, POD_FIELDS, ProxyContainer, is_own_variable};
pub use live::{TEMPLATE_HASH, belongs_to};

use live::{Live, annotation, content, deletions, has_ended, parse, template};

/// Reason: a pod that serves enforces an older content of a guard.
pub const OUTDATED: &str = "PolicyOutdated";

/// Reason: a pod that serves, or may, lacks a guard.
pub const MISSING: &str = "GuardMissing";

/// Reason: a pod that serves was made with the guards, and its proxy container is another one than the operator makes.
pub const CHANGED: &str = "ProxyChanged";

/// The proxy of a workload as it runs, and as the operator makes it.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// The Deployment.
    pub deployment: Option<&'a Deployment>,
    /// The pods of the Deployment.
    pub own: &'a [&'a Pod],
    /// The pods among them that serve.
    pub serving: &'a [&'a Pod],
    /// The pods among them that serve until they are gone.
    pub ending: &'a [&'a Pod],
    /// The pods with the labels of a proxy that no ReplicaSet of the Deployment controls: whatever they say of
    /// themselves, they enforce nothing.
    pub foreign: &'a [&'a Pod],
    /// The proxy containers of the pods, by the pods' names.
    pub containers: &'a BTreeMap<&'a str, &'a ProxyContainer>,
    /// The pods that the operator makes now; none while it makes none.
    pub rendered: Option<&'a Value>,
    /// The prefixes below which images may be those that were asked for.
    pub mirrors: &'a [String],
}

/// The result of [`judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The guards of the proxy that exists: whether it may go on.
    pub standing: Standing,
    /// The guards of the pods that serve; none where nothing is asked for.
    pub in_force: Option<InForce>,
    /// The hash of each configuration that is in force, by the field that asks for it: of the pods that serve, an older
    /// one first; where none serves, the one that new pods will have.
    pub hashes: Vec<(&'static str, String)>,
}

/// The guards of an existing proxy, compared with the requested ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// There is no proxy.
    NoProxy,
    /// It enforces what is asked for, as far as that can be told.
    Current,
    /// It has every guard that is asked for, one of them with an older content.
    Outdated,
    /// It lacks a guard that is asked for.
    Missing,
}

/// The guards that the serving pods enforce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Whether every one of them enforces what is asked for.
    pub asked: bool,
    /// Why not, or what it is: a sentence.
    pub message: String,
    /// One word for it.
    pub reason: &'static str,
    /// Whether pods that lack a guard stay until somebody deletes them: the proxy must have no Service meanwhile.
    pub by_hand: bool,
}

/// Compares the guards among `uses` with what runs.
pub fn judge(uses: &Uses, runs: &Running<'_>) -> Verdict {
    let judge = Judge { uses, runs };
    let hashes = uses.all().iter().filter_map(|used| Some((used.asked.field, judge.hash(used)?)));
    Verdict { standing: judge.standing(), in_force: judge.in_force(), hashes: hashes.collect() }
}

struct Judge<'a> {
    uses: &'a Uses,
    runs: &'a Running<'a>,
}

// === impl Judge ===

impl Judge<'_> {
    /// The guards of the live proxy, compared with the requested ones.
    ///
    /// A pod that somebody else made with the labels of a proxy would not go with the Deployment, so it must not make
    /// the Deployment go. The status tells of it ([`in_force`](Self::in_force)).
    ///
    /// Pods of an older content are a rollout under way: whether the proxy is outdated is for its template to say.
    /// Where the Deployment is gone its pods count until they have ended: a proxy made anew must not serve beside open
    /// ones.
    fn standing(&self) -> Standing {
        let deployment = self.runs.deployment;
        let counts = |pod: &Pod| deployment.is_none() || pod.metadata.deletion_timestamp.is_none();
        // A rollout that somebody undid may leave pods that the template does not describe.
        if self.runs.own.iter().any(|pod| !has_ended(pod) && counts(pod) && self.lacks(pod)) {
            return Standing::Missing;
        }
        match (deployment, deployment.and_then(template)) {
            (None, _) => Standing::NoProxy,
            (Some(_), Some(template)) => self.compare(&parse(template)),
            (Some(_), None) => self.compare(&self.before_the_digest(true)),
        }
    }

    /// The guards of the pods that serve, and of those that serve until they are gone.
    fn in_force(&self) -> Option<InForce> {
        let Running { deployment, own, serving, ending, foreign, .. } = *self.runs;
        self.uses.guards().next()?;
        let of = serving.len();
        let with = |standing| serving.iter().filter(|pod| self.of_pod(pod) == standing).count();
        let (older, without) = (with(Standing::Outdated), with(Standing::Missing));
        let lacking = ending.iter().filter(|pod| !has_ended(pod) && self.lacks(pod)).count();
        // Pods of a Deployment that was deleted without them (`--cascade=orphan`) stay, and keep a new one from being
        // made.
        let orphans: Vec<&Pod> = match deployment {
            Some(_) => Vec::new(),
            None => own.iter().copied().filter(|pod| self.lacks(pod)).collect(),
        };
        let stays = |pod: &&&Pod| pod.metadata.deletion_timestamp.is_none() && !has_ended(pod);
        let stay: Vec<&Pod> = orphans.iter().chain(foreign).filter(stays).copied().collect();
        let delete = deletions(stay.iter());
        let by_hand = delete.is_some();
        let unusable = self.uses.guards().find_map(|guard| match &guard.state {
            State::Unusable(message) => Some(message),
            State::Usable(_) => None,
        });
        let (asked, reason, message) = if let Some(delete) = delete {
            let message = format!("{} pods that the proxy's Service would select lack a guard; {delete}", stay.len());
            (false, MISSING, message)
        } else if without > 0 {
            (false, MISSING, format!("{without} of {of} pods behind the proxy's Service lack a guard"))
        } else if lacking > 0 {
            (false, MISSING, format!("{lacking} pods that are ending lack a guard"))
        } else if of == 0 {
            (false, "NoPodServes", "no proxy pod serves".to_owned())
        } else if let Some(unusable) = unusable {
            (false, "GuardNotUsable", format!("proxy pods enforce what was asked for before: {unusable}"))
        } else if older > 0 {
            (false, OUTDATED, format!("{older} of {of} proxy pods that serve enforce an older policy"))
        } else if let Some(changed) = self.changed() {
            (false, CHANGED, changed)
        } else {
            let names: Vec<_> = self.uses.guards().map(|guard| guard.asked.title()).collect();
            let names = names.join(", ");
            (true, "Enforced", format!("every proxy pod that serves enforces {names}{}", self.uses.passed_by()))
        };
        Some(InForce { asked, message, reason, by_hand })
    }

    /// A sentence on the pods that serve, or serve until they are gone, and have another proxy container than the
    /// operator makes: pods tell of guards in an annotation, which anybody may copy. Where the operator makes no proxy
    /// now, nothing can be told.
    fn changed(&self) -> Option<String> {
        let Running { serving, ending, rendered, .. } = *self.runs;
        let asked = rendered.and_then(|pod| ProxyContainer::of(&PodSpec::deserialize(pod).ok()?));
        let Some(asked) = asked else {
            let message = "proxy pods were made with what is asked for; what runs in them is not known while no proxy can be made";
            return Some(message.to_owned());
        };
        let pods = serving.iter().chain(ending);
        let changed =
            pods.filter_map(|pod| match self.runs.containers.get(pod.metadata.name.as_deref().unwrap_or_default()) {
                Some(found) => asked.first_difference(found, self.runs.mirrors),
                None => Some("name".into()),
            });
        let (changed, of): (Vec<_>, _) = (changed.collect(), serving.len() + ending.len());
        let first = changed.first()?;
        Some(format!(
            "{} of {of} proxy pods that serve have another proxy container than this operator makes ({first})",
            changed.len()
        ))
    }

    fn hash(&self, used: &Used) -> Option<String> {
        let asked = match &used.state {
            State::Usable(usable) => Some(usable.hash.clone()),
            State::Unusable(_) => None,
        };
        if used.asked.role != Role::Guard {
            return asked;
        }
        let id = used.asked.id();
        let live = self.runs.serving.iter().map(|pod| {
            let mark = self.live(pod).remove(&id).flatten()?;
            Some(content(&mark).to_owned())
        });
        live.into_iter().find(|hash| *hash != asked).unwrap_or(asked)
    }

    fn lacks(&self, pod: &Pod) -> bool {
        self.of_pod(pod) == Standing::Missing
    }

    fn of_pod(&self, pod: &Pod) -> Standing {
        self.compare(&self.live(pod))
    }

    fn compare(&self, live: &Live) -> Standing {
        if !self.uses.unbuilt().is_empty() {
            return Standing::Missing;
        }
        let each = self.uses.guards().map(|Used { asked, state, .. }| match (state, live.get(&asked.id())) {
            (_, None) => Standing::Missing,
            (State::Usable(usable), Some(mark)) if mark.as_deref() != Some(&*self.uses.mark(asked, &usable.hash)) => {
                Standing::Outdated
            }
            // Its content is not known; what the reference says is.
            (State::Unusable(_), Some(Some(mark))) if *mark != self.uses.mark(asked, content(mark)) => {
                Standing::Outdated
            }
            (State::Usable(_) | State::Unusable(_), Some(_)) => Standing::Current,
        });
        each.max().unwrap_or(Standing::Current)
    }

    /// The guards that a pod says it enforces. One without the annotation was made by a version before it, and has the
    /// guards of its Deployment; which content they have it does not say.
    fn live(&self, pod: &Pod) -> Live {
        annotation(&pod.metadata, GUARDS).map_or_else(|| self.before_the_digest(false), parse)
    }

    fn before_the_digest(&self, with_hash: bool) -> Live {
        let Some(deployment) = self.runs.deployment else { return Live::new() };
        let told = self.uses.guards().filter_map(|Used { asked, .. }| {
            let (name, hash) = annotation(&deployment.metadata, asked.annotation?)?.split_once('/')?;
            Some(((asked.id().0, name.to_owned()), with_hash.then(|| hash.to_owned())))
        });
        told.collect()
    }
}
