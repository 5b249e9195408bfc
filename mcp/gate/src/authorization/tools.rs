//! The hints that the MCP server gives of its tools, and policies read (toolhive-auth §4.5).
//!
//! They are learnt from every list before it is filtered, and hold until the server says that its tools have changed, or for some minutes. Where a policy needs
//! those of a tool that no list had, the proxy lists the tools itself, as the caller: one list at a time, at most one a second, and few that wait for each client.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex as Slot, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http_body_util::BodyExt as _;
use mcp_authz::{Denial, Feature, Hints, KnownHints, Question};
use mcp_middleware::{ListFilter, Next};
use mcp_runconfig::AUTHORIZATION;
use mcp_store::{Bound, Client, Shares};
use mcp_wire::{List, ListKind, OwnedMessage};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use super::check_length;

/// The denial of a call whose tool no list had.
pub(super) const NOT_LISTED: Denial = Denial::Refused("policies read hints of a tool that no list of the server has");

/// The time for which hints hold: a server that was replaced tells nobody.
const KEPT: Duration = Duration::from_mins(5);
/// The time for which a client's list answers for tools that it did not have.
const MISSED: Duration = Duration::from_secs(10);
/// The time that a call waits for lists.
const TIME: Duration = Duration::from_secs(30);
/// The time between the end of one list and the next: clients may call tools that there are not.
const BETWEEN: Duration = Duration::from_secs(1);
/// The most pages of a list.
const PAGES: usize = 50;
/// The calls that wait for lists, in all and of each client.
const LIMIT: usize = 256;
const LIMIT_OF_CLIENT: usize = 8;

/// The members of `_meta` by which a request of the stateless era says what it is.
const META: [&str; 4] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
];

const PAGE: ListFilter =
    ListFilter { middleware: AUTHORIZATION, kinds: &[ListKind::Tools], cost: 0, is_private: false };

/// The hints of the MCP server's tools.
pub(super) struct Tools {
    known: RwLock<Known>,
    /// Whether answers come on the client's own stream: the proxy cannot ask for itself then.
    answers_on_stream: bool,
    /// The end of the last list for a caller; whoever holds it lists.
    listed: Mutex<Option<Instant>>,
    waiting: Arc<Shares>,
}

/// The hints that were learnt since a time, and the clients for whom the proxy has listed all tools of late.
#[derive(Default)]
struct Known {
    since: Option<Instant>,
    hints: KnownHints,
    listed: HashMap<Client, Instant>,
}

/// The reason why the proxy's own request for a list had none in its answer.
type NoList = Cow<'static, str>;

impl Tools {
    pub(super) fn new(answers_on_stream: bool) -> Self {
        let waiting = Shares::new(LIMIT, LIMIT_OF_CLIENT);
        Self { known: RwLock::default(), answers_on_stream, listed: Mutex::default(), waiting }
    }

    pub(super) fn bound(&self) -> Bound {
        self.waiting.bound("hint_lists")
    }

    /// Whether hints are learnt from a list in the answer to `message`, or in that to a GET. A member of another result that looks like a list may be made by
    /// whoever asked for it; where all answers come on a stream, nobody can tell one from the other.
    pub(super) fn learn_from(&self, message: Option<&OwnedMessage>) -> bool {
        message.map_or(self.answers_on_stream, |message| message.message().method() == Some("tools/list"))
    }

    /// Learns what a list says, if it is one of tools.
    pub(super) fn learn(&self, list: &List) -> Result<(), &'static str> {
        if list.kind() != ListKind::Tools {
            return Ok(());
        }
        let tools = list.entries().iter().map(Question::of).collect::<Result<Vec<_>, _>>()?;
        let mut known = self.renewed();
        for tool in tools {
            if known.hints.learn(&tool.id, tool.hints) {
                tracing::warn!(
                    "the server has more tools than hints are kept of, and those of earlier lists are forgotten"
                );
            }
        }
        Ok(())
    }

    /// Forgets everything: the MCP server says that its tools have changed.
    pub(super) fn forget(&self) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }

    /// The question with the hints of the tool that it is about; `None` where no list had the tool yet.
    pub(super) fn with_hints<'a>(&self, question: Question<'a>) -> Option<Question<'a>> {
        if question.feature != Feature::Tool {
            return Some(question);
        }
        let hints = self.hints_of(&question.id)?;
        Some(Question { hints, ..question })
    }

    /// The question with the hints, where they are known.
    pub(super) fn with_known_hints<'a>(&self, question: Question<'a>) -> Question<'a> {
        self.with_hints(question.clone()).unwrap_or(question)
    }

    /// Lists the tools as the caller of a tool that no list had yet.
    pub(super) async fn list(self: &Arc<Self>, call: &OwnedMessage, head: &Parts, next: &Next<'_>) {
        let client = next.context().client();
        let Ok(Some(tool)) = call.message().target() else { return };
        let is_over = || self.hints_of(&tool).is_some() || self.has_listed_for(&client);
        if self.answers_on_stream || is_over() {
            return;
        }
        let Some(_share) = self.waiting.take(&client, 1) else {
            tracing::debug!("a call does not wait for a list of tools: too many of its client do");
            return;
        };
        let listed = timeout(TIME, async {
            let mut last = self.listed.lock().await;
            if is_over() {
                return;
            }
            if let Some(last) = *last {
                sleep_until(last + BETWEEN).await;
            }
            // A caller that leaves while the list is under way still makes the next one wait.
            *last = Some(Instant::now());
            match self.pages(call, head, next).await {
                Ok(pages) => {
                    tracing::info!(
                        pages,
                        "listed the MCP server's tools as their caller, for policies that read hints"
                    );
                    self.note_listed_for(&client);
                }
                Err(reason) => {
                    tracing::warn!(
                        %reason,
                        "the MCP server gave no list of its tools, so that a call is refused for policies that read hints"
                    );
                }
            }
            *last = Some(Instant::now());
        });
        if listed.await.is_err() {
            tracing::warn!("the tools could not be listed in time, for policies that read hints");
        }
    }

    /// Learns from all pages, and counts them.
    async fn pages(self: &Arc<Self>, call: &OwnedMessage, head: &Parts, next: &Next<'_>) -> Result<usize, NoList> {
        let mut cursor = None;
        for page in 1..=PAGES {
            cursor = self.page(call, head, next, cursor).await?;
            if cursor.is_none() {
                return Ok(page);
            }
        }
        Ok(PAGES)
    }

    /// Learns from a page, and returns the cursor of the next one.
    async fn page(
        self: &Arc<Self>,
        call: &OwnedMessage,
        head: &Parts,
        next: &Next<'_>,
        cursor: Option<String>,
    ) -> Result<Option<String>, NoList> {
        let found = Arc::new(Slot::new(None));
        let (this, kept) = (Arc::clone(self), Arc::clone(&found));
        let asked = next.ask(head, request(call, cursor), move |context| {
            context.filter_lists(PAGE, move |list| {
                let learnt = check_length(&list).and_then(|()| this.learn(&list));
                let more = learnt.and_then(|()| Ok(list.next_cursor()?.map(Into::into)));
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(more);
                ready(Ok(list))
            });
        });
        let (context, response) = asked.await.map_err(|error| Cow::Owned(error.to_string()))?;
        let (head, mut body) = response.into_parts();
        // A list in an event is found while the events are read.
        loop {
            if let Some(found) = found.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return found.map_err(Cow::Borrowed);
            }
            if !matches!(body.frame().await, Some(Ok(_))) {
                break;
            }
        }
        Err(match context.denial() {
            Some(denial) => format!("{}: {}", denial.middleware, denial.reason).into(),
            None => format!("HTTP {}", head.status.as_u16()).into(),
        })
    }

    fn hints_of(&self, tool: &str) -> Option<Hints> {
        let known = self.read();
        if self.hold(&known) { known.hints.of(tool) } else { None }
    }

    /// Whether all tools were listed a moment ago as this client, for which the server may have others than for the rest.
    fn has_listed_for(&self, client: &Client) -> bool {
        let known = self.read();
        self.hold(&known) && known.listed.get(client).is_some_and(|listed| listed.elapsed() < MISSED)
    }

    fn note_listed_for(&self, client: &Client) {
        let mut known = self.renewed();
        known.listed.retain(|_, listed| listed.elapsed() < MISSED);
        known.listed.insert(client.clone(), Instant::now());
    }

    /// Whether hints hold still. Where the proxy cannot list for itself, they hold until the server says that its tools have changed.
    fn hold(&self, known: &Known) -> bool {
        known.since.is_some_and(|since| self.answers_on_stream || since.elapsed() < KEPT)
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hints to add to: none where those that were known hold no more.
    fn renewed(&self) -> RwLockWriteGuard<'_, Known> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if !self.hold(&known) {
            *known = Known { since: Some(Instant::now()), ..Known::default() };
        }
        known
    }
}

/// A request for a page, in the era of the call.
fn request(call: &OwnedMessage, cursor: Option<String>) -> Bytes {
    let said = META.into_iter().filter_map(|name| {
        let value = call.message().meta(name).ok()??;
        Some((name.to_owned(), serde_json::from_str(value.get()).ok()?))
    });
    let meta: Map<String, Value> = said.collect();
    let mut params = Map::new();
    params.extend(cursor.map(|cursor| ("cursor".to_owned(), cursor.into())));
    if !meta.is_empty() {
        params.insert("_meta".to_owned(), meta.into());
    }
    let id = format!("portcullis-{}", uuid::Uuid::new_v4());
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params }).to_string().into()
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn tools(names: &[&str]) -> List {
        let tools: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": { "tools": tools }});
        List::read(answer.to_string().into(), &[ListKind::Tools]).unwrap().unwrap()
    }

    fn knows(known: &Tools, tool: &str) -> bool {
        known.with_hints(Question::new(Feature::Tool, tool)).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn hints_hold_for_minutes_from_the_first_list_and_until_tools_change() {
        for answers_on_stream in [false, true] {
            let known = Tools::new(answers_on_stream);
            known.learn(&tools(&["a"])).unwrap();
            advance(KEPT / 2).await;
            known.learn(&tools(&["b"])).unwrap();
            assert!(knows(&known, "a") && knows(&known, "b"));
            advance(KEPT / 2).await;
            assert_eq!((knows(&known, "a"), knows(&known, "b")), (answers_on_stream, answers_on_stream));
            known.learn(&tools(&["c"])).unwrap();
            assert_eq!((knows(&known, "a"), knows(&known, "c")), (answers_on_stream, true));
            known.forget();
            assert!(!knows(&known, "c"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_answers_for_its_client_alone_and_not_for_long() {
        let known = Tools::new(false);
        let [one, two] = [1, 2].map(|host| Client::Network([192, 0, 2, host].into()));
        known.note_listed_for(&one);
        assert!(known.has_listed_for(&one) && !known.has_listed_for(&two));
        known.forget();
        assert!(!known.has_listed_for(&one), "the tools are others now");
        known.note_listed_for(&one);
        advance(MISSED).await;
        assert!(!known.has_listed_for(&one));
        known.note_listed_for(&two);
        assert_eq!(known.read().listed.len(), 1, "nothing is kept of a list that answers no more");
    }
}
