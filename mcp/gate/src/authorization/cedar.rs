//! Decisions by the policies of the document, `cedarv1`.

use std::sync::Arc;

use mcp_authz::{Caller, ClaimSource, Denial, Feature, Policies, Question};
use mcp_middleware::Identity;
use mcp_runconfig::CedarConfig;
use mcp_wire::{Entry, List, OwnedMessage};

use super::callers::Callers;
use super::questions;
use super::tools::{NOT_LISTED, Tools};

/// The cost of a decision beside the evaluation of policies, as the bytes of a message that take as long to read.
const LEAST: usize = 4 << 10;

/// The policies of a proxy.
pub(super) struct Cedar {
    policies: Policies,
    callers: Callers,
    /// See [`Cedar::cost`].
    cost: usize,
    count: usize,
    /// The identity provider whose tokens nobody has here.
    provider: String,
}

impl Cedar {
    /// The error is the member of `config` and what is wrong with it.
    pub(super) fn new(config: &CedarConfig, server: &str) -> Result<Self, (String, String)> {
        let policies = Policies::parse(config, server).map_err(|error| error.parts())?;
        Ok(Self {
            policies,
            callers: Callers::default(),
            cost: config.policies.iter().map(String::len).sum::<usize>() + LEAST,
            count: config.policies.len(),
            provider: config.primary_upstream_provider.clone(),
        })
    }

    /// The work for one decision, as the bytes of a message that take as long to read.
    pub(super) fn cost(&self) -> usize {
        self.cost
    }

    /// Whether a policy reads hints of tools.
    pub(super) fn reads_hints(&self) -> bool {
        self.policies.reads_hints()
    }

    pub(super) fn announce(&self) {
        let (policies, reads_hints) = (self.count, self.policies.reads_hints());
        tracing::info!(policies, reads_hints, "calls are authorized by Cedar policies");
        if !self.provider.is_empty() {
            let provider = &*self.provider;
            tracing::warn!(
                provider,
                "primary_upstream_provider is set, whose tokens no caller has here: every call is denied"
            );
        }
    }

    /// The decision about a message; `None` where it asks for nothing that policies decide on.
    pub(super) fn judge(
        &self,
        message: &OwnedMessage,
        identity: Option<&Arc<Identity>>,
        tools: &Tools,
    ) -> Option<Result<(), Denial>> {
        Some(questions(message)?.and_then(|questions| {
            let caller = self.caller(identity)?;
            questions
                .into_iter()
                .try_for_each(|question| self.policies.decide(&caller, &self.with_hints(question, tools)?))
        }))
    }

    /// The list as the caller sees it.
    pub(super) fn filter(&self, mut list: List, identity: Option<&Arc<Identity>>) -> Result<List, &'static str> {
        let caller = self.caller(identity);
        list.retain(|entry| {
            let visible =
                |question| caller.as_ref().is_ok_and(|caller| self.policies.decide(caller, &question).is_ok());
            self.entry_question(entry).map(visible)
        })?;
        Ok(list)
    }

    /// The question that decides whether an entry of a list is seen. Odd hints withhold a list only where a policy reads hints.
    pub(super) fn entry_question<'a>(&self, entry: &'a Entry<'_>) -> Result<Question<'a>, &'static str> {
        let feature = Feature::of(entry.kind());
        if self.reads_hints() { Question::of(entry) } else { Ok(Question::new(feature, entry.name())) }
    }

    pub(super) fn policies(&self) -> &Policies {
        &self.policies
    }

    pub(super) fn caller(&self, identity: Option<&Arc<Identity>>) -> Result<Arc<Caller>, Denial> {
        let identity = identity.ok_or(Denial::Refused("nobody has said who calls"))?;
        let source = if identity.logged_in { ClaimSource::Request } else { ClaimSource::Local };
        self.callers.of(identity, || Caller::new(&self.policies, &identity.claims, source))
    }

    /// The question with the hints of the tool that it is about. A policy that reads them decides nothing about a tool that no list had.
    pub(super) fn with_hints<'a>(&self, question: Question<'a>, tools: &Tools) -> Result<Question<'a>, Denial> {
        if !self.policies.reads_hints() {
            return Ok(question);
        }
        tools.with_hints(question).ok_or(NOT_LISTED)
    }
}
