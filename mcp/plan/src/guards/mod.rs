//! The guards of a workload: what its spec asks to stand between a caller and the MCP server, and what stands there.
//!
//! A guard is a configuration that a workload refers to and without which it must not run. The guards that a proxy was
//! made with are written on its pod template ([`GUARDS`]), where users' overrides cannot reach, so every pod says which
//! guards it enforces. One function compares what is asked for with what is there ([`Guards::standing`]): where a guard
//! is missing, old pods go before new ones come; where one has changed or is not asked for any more, the Deployment rolls.
//! The status says more of the pods that serve: that their proxy container is the one that was made ([`ProxyContainer`]).

mod container;
mod guard;
mod live;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use mcp_api::names::annotation::GUARDS;
use mcp_runconfig::RunConfig;

use crate::{
    additions::Additions,
    config::Guarded,
    reference::{Data, MountedFile, SecretVariable},
    settings::Settings,
};

pub use container::{CONTAINER, OWN_FIELDS, POD_FIELDS, ProxyContainer, is_own_variable};
pub use guard::{Configs, GuardCondition, GuardRef};
pub use live::{TEMPLATE_HASH, belongs_to};

use guard::{Guard, State, Usable};
use live::{Live, annotation, content, deletions, has_ended, parse, template};

/// Reason: a pod that serves enforces an older content of a guard.
pub const OUTDATED: &str = "PolicyOutdated";

/// Reason: a pod that serves, or may, lacks a guard.
pub const MISSING: &str = "GuardMissing";

/// Reason: a pod that serves was made with the guards, and its proxy container is another one than the operator makes.
pub const CHANGED: &str = "ProxyChanged";

/// The guards that a spec asks for.
#[derive(Clone, Debug, Default)]
pub struct RequestedGuards {
    /// Those that are configurations of this version's kinds.
    pub configs: Vec<GuardRef>,
    /// Fields that ask for a guard of a kind that this version does not have.
    pub unbuilt: Vec<&'static str>,
    /// The requests of the workload's annotations to its proxy.
    pub additions: Additions,
}

/// The guards of one workload, looked up.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "the guards are what the type is named after")]
pub struct Guards {
    guards: Vec<Guard>,
    unbuilt: Vec<&'static str>,
    additions: Additions,
}

/// What a proxy that exists enforces, compared with what is asked for.
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

/// What the pods that serve enforce.
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

// === impl RequestedGuards ===

impl RequestedGuards {
    /// Those of `configs` that are referred to; of `unbuilt`, fields and whether they are set, those that are.
    pub fn of(configs: impl IntoIterator<Item = Option<GuardRef>>, unbuilt: &[(&'static str, bool)]) -> Self {
        let unbuilt = unbuilt.iter().filter(|(_, is_set)| *is_set).map(|(field, _)| *field);
        let configs = configs.into_iter().flatten().collect();
        Self { configs, unbuilt: unbuilt.collect(), additions: Additions::default() }
    }

    /// The same for a workload whose annotations ask for `additions`. What those say is part of each guard: a proxy that was made before a
    /// change of them enforces something else.
    #[must_use]
    pub fn with_additions(mut self, additions: Additions) -> Self {
        self.configs.iter_mut().for_each(|guard| guard.terms.additions = additions.clone());
        Self { additions, ..self }
    }

    /// The fields and annotations that the proxy's image cannot enforce.
    pub fn unbuilt(&self, settings: &Settings) -> Vec<&'static str> {
        let configs = self.configs.iter().filter(|guard| !guard.is_built(settings)).map(|guard| guard.field);
        let additions = self.additions.unbuilt(settings).filter(|_| self.judge_messages());
        self.unbuilt.iter().copied().chain(configs).chain(additions).collect()
    }

    /// Whether one of them judges messages, so that the proxy serves MCP endpoints alone.
    pub fn judge_messages(&self) -> bool {
        self.configs.iter().any(GuardRef::judges_messages)
    }
}

// === impl InForce ===

impl InForce {
    /// Compares what the pods that serve run with `asked`, the proxy container that the operator makes: pods tell of guards
    /// in an annotation, which anybody may copy. Where the operator makes none now, nothing can be told. Images may come from `mirrors`.
    #[must_use]
    pub fn in_containers<'a>(
        self,
        asked: Option<&ProxyContainer>,
        found: impl ExactSizeIterator<Item = Option<&'a ProxyContainer>>,
        mirrors: &[String],
    ) -> Self {
        if !self.asked {
            return self;
        }
        let of = found.len();
        let message = if let Some(asked) = asked {
            let changed = found.filter_map(|found| match found {
                Some(found) => asked.first_difference(found, mirrors),
                None => Some("name".into()),
            });
            let changed: Vec<_> = changed.collect();
            let Some(first) = changed.first() else { return self };
            format!(
                "{} of {of} proxy pods that serve have another proxy container than this operator makes ({first})",
                changed.len()
            )
        } else {
            "proxy pods were made with what is asked for; what runs in them is not known while no proxy can be made"
                .to_owned()
        };
        Self { asked: false, reason: CHANGED, message, ..self }
    }
}

// === impl Guards ===

impl Guards {
    /// Looks up what `asked` names.
    pub fn look_up(asked: RequestedGuards, configs: &Configs, data: &Data, settings: &Settings) -> Self {
        let unbuilt = asked.unbuilt(settings);
        let RequestedGuards { configs: asked, additions, .. } = asked;
        let guards = asked.into_iter().map(|asked| asked.look_up(configs, data, settings)).collect();
        Self { guards, unbuilt, additions }
    }

    /// The fields that ask for a guard that this version cannot enforce.
    pub fn unbuilt(&self) -> &[&'static str] {
        &self.unbuilt
    }

    /// Whether all that is asked for can be put in place.
    pub fn can_be_enforced(&self) -> bool {
        self.unbuilt.is_empty() && self.usable().count() == self.guards.len()
    }

    /// What the conditions of the workload say of each.
    pub fn conditions(&self) -> impl Iterator<Item = &GuardCondition> {
        self.guards.iter().flat_map(|guard| &guard.conditions)
    }

    /// The kinds of the configurations that guard the workload.
    pub fn kinds(&self) -> BTreeSet<Cow<'static, str>> {
        self.guards.iter().map(|guard| guard.asked.kind.clone()).collect()
    }

    /// The annotation of a proxy made with these guards; none where there are none.
    pub fn digest(&self) -> Option<String> {
        let mut all: Vec<String> = self
            .usable()
            .map(|(asked, usable)| format!("{}/{}/{}", asked.kind, asked.name, asked.mark(&usable.hash)))
            .collect();
        all.sort();
        if all.is_empty() { None } else { Some(all.join(",")) }
    }

    /// The annotations of the proxy's Deployment by which older versions know its guards.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let named = self.usable().filter_map(|(asked, usable)| {
            Some((asked.annotation?.to_owned(), format!("{}/{}", asked.name, usable.hash)))
        });
        named.collect()
    }

    /// The files that the proxy needs, in a fixed order, each once.
    pub fn files(&self) -> Vec<&MountedFile> {
        let all = self.usable().flat_map(|(_, usable)| &usable.files).map(|file| (&file.directory, file));
        all.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// The variables that the proxy's process needs, in a fixed order.
    pub fn variables(&self) -> Vec<&SecretVariable> {
        self.usable().flat_map(|(_, usable)| &usable.variables).collect()
    }

    /// Whether the proxy needs the CA and the token of its pod's ServiceAccount.
    pub fn need_account(&self) -> bool {
        self.usable().any(|(_, usable)| usable.config.needs_account())
    }

    /// Puts into the document of the proxy what it is to enforce for the workload at `url`.
    pub fn enforce(&self, url: &str, document: &mut RunConfig) {
        self.additions.render(document);
        for (asked, usable) in self.usable() {
            usable.config.enforce(&Guarded { url, terms: &asked.terms }, document);
        }
    }

    /// What the live proxy enforces, compared with what is asked for.
    ///
    /// `own` are the pods of the Deployment: one that somebody else made with the labels of a proxy would not go with the
    /// Deployment, so it must not make the Deployment go. The status tells of it ([`in_force`](Self::in_force)).
    ///
    /// Pods of an older content are a rollout under way: whether the proxy is outdated is for its template to say. Where
    /// the Deployment is gone its pods count until they have ended: a proxy made anew must not serve beside open ones.
    pub fn standing(&self, deployment: Option<&Deployment>, own: &[&Pod]) -> Standing {
        let template = deployment.and_then(template);
        let told = template.is_none();
        let counts = |pod: &Pod| deployment.is_none() || pod.metadata.deletion_timestamp.is_none();
        let lacks = |pod: &Pod| self.compare(&self.of_pod(pod, deployment, told)) == Standing::Missing;
        // A rollout that somebody undid may leave pods that the template does not describe.
        if own.iter().any(|pod| !has_ended(pod) && counts(pod) && lacks(pod)) {
            return Standing::Missing;
        }
        match (deployment, template) {
            (None, _) => Standing::NoProxy,
            (Some(_), Some(template)) => self.compare(&parse(template)),
            (Some(_), None) => self.compare(&self.before_the_digest(deployment, true)),
        }
    }

    /// What the pods that serve enforce; none where nothing is asked for. `own` are the pods of the Deployment: those that
    /// serve, and those that serve until they are gone, are told apart from the rest. `foreign` are pods with the labels of a
    /// proxy that no ReplicaSet of the Deployment controls: whatever they say of themselves, they enforce nothing.
    pub fn in_force(
        &self,
        deployment: Option<&Deployment>,
        own: &[&Pod],
        serving: &[&Pod],
        ending: &[&Pod],
        foreign: &[&Pod],
    ) -> Option<InForce> {
        if self.guards.is_empty() {
            return None;
        }
        let (mut older, mut without, of) = (0_usize, 0_usize, serving.len());
        for pod in serving {
            match self.compare(&self.of_pod(pod, deployment, false)) {
                Standing::NoProxy | Standing::Current => {}
                Standing::Outdated => older += 1,
                Standing::Missing => without += 1,
            }
        }
        let lacks = |pod: &Pod| self.compare(&self.of_pod(pod, deployment, false)) == Standing::Missing;
        let ending = ending.iter().filter(|pod| !has_ended(pod) && lacks(pod)).count();
        // Those of a Deployment that was deleted without them (`--cascade=orphan`) stay, and keep a new one from being made.
        let orphans: Vec<&Pod> = match deployment {
            Some(_) => Vec::new(),
            None => own.iter().copied().filter(|pod| lacks(pod)).collect(),
        };
        let stays = |pod: &&&Pod| pod.metadata.deletion_timestamp.is_none() && !has_ended(pod);
        let stay: Vec<&Pod> = orphans.iter().chain(foreign).filter(stays).copied().collect();
        let delete = deletions(stay.iter());
        let by_hand = delete.is_some();
        let unusable = self.guards.iter().find_map(|guard| match &guard.state {
            State::Unusable(message) => Some(message),
            State::Usable(_) => None,
        });
        let (asked, reason, message) = if let Some(delete) = delete {
            let message = format!("{} pods that the proxy's Service would select lack a guard; {delete}", stay.len());
            (false, MISSING, message)
        } else if without > 0 {
            (false, MISSING, format!("{without} of {of} pods behind the proxy's Service lack a guard"))
        } else if ending > 0 {
            (false, MISSING, format!("{ending} pods that are ending lack a guard"))
        } else if of == 0 {
            (false, "NoPodServes", "no proxy pod serves".to_owned())
        } else if let Some(unusable) = unusable {
            (false, "GuardNotUsable", format!("proxy pods enforce what was asked for before: {unusable}"))
        } else if older > 0 {
            (false, OUTDATED, format!("{older} of {of} proxy pods that serve enforce an older policy"))
        } else {
            (true, "Enforced", format!("every proxy pod that serves enforces {}{}", self.names(), self.passed_by()))
        };
        Some(InForce { asked, message, reason, by_hand })
    }

    /// The hash of a kind's configuration that is in force: of the pods that serve, an older one first; where none
    /// serves, the one that new pods will enforce.
    pub fn hash(&self, kind: &str, deployment: Option<&Deployment>, serving: &[&Pod]) -> Option<String> {
        let guard = self.guards.iter().find(|guard| guard.asked.kind == kind)?;
        let asked = match &guard.state {
            State::Usable(usable) => Some(usable.hash.clone()),
            State::Unusable(_) => None,
        };
        let id = guard.asked.id();
        let live = serving.iter().map(|pod| {
            let mark = self.of_pod(pod, deployment, false).remove(&id).flatten()?;
            Some(content(&mark).to_owned())
        });
        live.into_iter().find(|hash| *hash != asked).unwrap_or(asked)
    }

    fn usable(&self) -> impl Iterator<Item = (&GuardRef, &Usable)> {
        self.guards.iter().filter_map(|Guard { asked, state, .. }| match state {
            State::Usable(usable) => Some((asked, usable)),
            State::Unusable(_) => None,
        })
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.guards.iter().map(|it| format!("{} {:?}", it.asked.kind, it.asked.name)).collect();
        names.join(", ")
    }

    /// The paths that are open although a guard judges messages.
    fn passed_by(&self) -> String {
        let open = &self.additions.paths.open_paths;
        if open.is_empty() || !self.guards.iter().any(|guard| guard.asked.judges_messages()) {
            return String::new();
        }
        format!("; requests to {} pass unjudged", open.join(", "))
    }

    fn compare(&self, live: &Live) -> Standing {
        if !self.unbuilt.is_empty() {
            return Standing::Missing;
        }
        let each = self.guards.iter().map(|Guard { asked, state, .. }| match (state, live.get(&asked.id())) {
            (_, None) => Standing::Missing,
            (State::Usable(usable), Some(mark)) if mark.as_deref() != Some(&*asked.mark(&usable.hash)) => {
                Standing::Outdated
            }
            // Its content is not known; what the reference says is.
            (State::Unusable(_), Some(Some(mark))) if *mark != asked.mark(content(mark)) => Standing::Outdated,
            (State::Usable(_) | State::Unusable(_), Some(_)) => Standing::Current,
        });
        each.max().unwrap_or(Standing::Current)
    }

    /// What a pod enforces. One without the annotation was made by a version before it, and counts as its Deployment says;
    /// but which content it enforces is `told` only while the template was made by that version too.
    fn of_pod(&self, pod: &Pod, deployment: Option<&Deployment>, told: bool) -> Live {
        match annotation(&pod.metadata, GUARDS) {
            Some(digest) => parse(digest),
            None => self.before_the_digest(deployment, told),
        }
    }

    fn before_the_digest(&self, deployment: Option<&Deployment>, with_hash: bool) -> Live {
        let Some(deployment) = deployment else { return Live::new() };
        let told = self.guards.iter().filter_map(|Guard { asked, .. }| {
            let (name, hash) = annotation(&deployment.metadata, asked.annotation?)?.split_once('/')?;
            let hash = if with_hash { Some(hash.to_owned()) } else { None };
            Some(((asked.kind.clone().into_owned(), name.to_owned()), hash))
        });
        told.collect()
    }
}
