//! The decisions of authorization, with the policies that made them: for those who ask about calls that nobody makes.

use std::sync::Arc;

use mcp_authz::{Denial, Feature, Outlook, Outlooks, Question};
use mcp_middleware::Identity;
use mcp_wire::{Entry, List, OwnedMessage};

use super::cedar::Cedar;
use super::{Authorization, Decider, Tools, check_length, questions};

/// The part that decides about a list of tools, and calls of them.
pub(crate) enum View<'a> {
    Cedar(Box<CedarView<'a>>),
    Pdp,
}

pub(crate) struct CedarView<'a> {
    cedar: &'a Cedar,
    outlooks: Outlooks<'a>,
    tools: Tools,
}

impl Authorization {
    /// The part that decides, which has learnt what the MCP server says of its tools in this list.
    ///
    /// # Errors
    /// The list is withheld from everybody.
    pub(crate) fn view(&self, list: &List) -> Result<View<'_>, &'static str> {
        check_length(list)?;
        let Decider::Cedar(cedar) = &self.decider else { return Ok(View::Pdp) };
        let tools = Tools::new(false);
        if cedar.reads_hints() {
            tools.learn(list, None)?;
        }
        Ok(View::Cedar(Box::new(CedarView { cedar, outlooks: Outlooks::new(cedar.policies()), tools })))
    }
}

type Caller<'a> = Option<&'a Arc<Identity>>;

impl CedarView<'_> {
    /// The list as the caller sees it.
    pub(crate) fn filter(&self, list: List, caller: Caller<'_>) -> Result<List, &'static str> {
        self.cedar.filter(list, caller)
    }

    /// The policies by which the caller sees a tool.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn sees(&self, tool: &Entry<'_>, caller: Caller<'_>) -> Result<Vec<String>, Denial> {
        let caller = self.cedar.caller(caller)?;
        let question = self.cedar.entry_question(tool).map_err(Denial::Refused)?;
        self.cedar.policies().decide(&caller, &question)?;
        Ok(self.outlooks.permitting(&caller, &question))
    }

    /// The policies by which the caller may send this message.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn calls(&self, message: &OwnedMessage, caller: Caller<'_>) -> Result<Vec<String>, Denial> {
        self.cedar.judge(message, caller, &self.tools).unwrap_or(Ok(()))?;
        let (caller, question) = self.question(message, caller)?;
        Ok(self.outlooks.permitting(&caller, &question))
    }

    /// The decision about such messages, whatever their arguments are.
    pub(crate) fn outlook(&self, message: &OwnedMessage, caller: Caller<'_>) -> Outlook {
        let outlook = self.question(message, caller).map(|(caller, question)| self.outlooks.of(&caller, &question));
        outlook.unwrap_or_else(Outlook::Denied)
    }

    /// The caller of a message that calls a tool, and its question.
    fn question<'a>(
        &self,
        message: &'a OwnedMessage,
        caller: Caller<'_>,
    ) -> Result<(Arc<mcp_authz::Caller>, Question<'a>), Denial> {
        let question = questions(message).transpose()?.and_then(|questions| questions.into_iter().next());
        let question = question.unwrap_or_else(|| Question::new(Feature::Tool, ""));
        Ok((self.cedar.caller(caller)?, self.cedar.with_hints(question, &self.tools)?))
    }
}
