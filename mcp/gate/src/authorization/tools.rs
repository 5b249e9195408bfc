//! The hints that the MCP server gives of its tools, and policies read (toolhive-auth §4.5).
//!
//! They are learnt from every list before it is filtered. Where a policy needs those of a tool that no list had, the proxy lists the tools itself, as the
//! caller: one list at a time, at most one a second, and few that wait for each client.

use std::future::ready;
use std::sync::{Arc, Mutex as Slot, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http_body_util::BodyExt as _;
use mcp_authz::{Denial, Feature, KnownHints, Question};
use mcp_middleware::Next;
use mcp_runconfig::AUTHORIZATION;
use mcp_store::{Bound, Shares};
use mcp_wire::{List, ListKind, OwnedMessage};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

/// The denial of a call whose tool no list had.
pub(super) const NOT_LISTED: Denial = Denial::Refused("policies read hints of a tool that no list of the server has");

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

/// The hints of the MCP server's tools.
pub(super) struct Tools {
    known: RwLock<KnownHints>,
    /// Whether answers come on the client's own stream: the proxy cannot ask for itself then.
    answers_on_stream: bool,
    /// The end of the last list for a caller; whoever holds it lists.
    listed: Mutex<Option<Instant>>,
    waiting: Arc<Shares>,
}

impl Tools {
    pub(super) fn new(answers_on_stream: bool) -> Self {
        let waiting = Shares::new(LIMIT, LIMIT_OF_CLIENT);
        Self { known: RwLock::default(), answers_on_stream, listed: Mutex::default(), waiting }
    }

    pub(super) fn bound(&self) -> Bound {
        self.waiting.bound("hint_lists")
    }

    /// Learns what a list says, if it is one of tools.
    pub(super) fn learn(&self, list: &List) -> Result<(), &'static str> {
        if list.kind() != ListKind::Tools {
            return Ok(());
        }
        let tools = list.entries().iter().map(Question::of).collect::<Result<Vec<_>, _>>()?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for tool in tools {
            if known.learn(&tool.id, tool.hints) {
                tracing::warn!(
                    "the server has more tools than hints are kept of, and those of earlier lists are forgotten"
                );
            }
        }
        Ok(())
    }

    /// The question with the hints of the tool that it is about; `None` where no list had the tool yet.
    pub(super) fn tell<'a>(&self, question: Question<'a>) -> Option<Question<'a>> {
        if question.feature != Feature::Tool {
            return Some(question);
        }
        let hints = self.known.read().unwrap_or_else(PoisonError::into_inner).of(&question.id)?;
        Some(Question { hints, ..question })
    }

    /// The question with the hints, where they are known.
    pub(super) fn told<'a>(&self, question: Question<'a>) -> Question<'a> {
        self.tell(question.clone()).unwrap_or(question)
    }

    /// Lists the tools as the caller of a tool that no list had yet.
    pub(super) async fn list(self: &Arc<Self>, call: &OwnedMessage, head: &Parts, next: &Next<'_>) {
        let share = self.waiting.take(&next.context().client(), 1).filter(|_| !self.answers_on_stream);
        let (Some(_share), Ok(Some(tool))) = (share, call.message().target()) else { return };
        let is_known = || self.known.read().unwrap_or_else(PoisonError::into_inner).of(&tool).is_some();
        let listed = timeout(TIME, async {
            let mut last = self.listed.lock().await;
            if is_known() {
                return;
            }
            if let Some(last) = *last {
                sleep_until(last + BETWEEN).await;
            }
            // A caller that leaves while the list is under way still makes the next one wait.
            *last = Some(Instant::now());
            self.pages(call, head, next).await;
            *last = Some(Instant::now());
        });
        if listed.await.is_err() {
            tracing::warn!("the tools could not be listed in time, for policies that read hints");
        }
    }

    async fn pages(self: &Arc<Self>, call: &OwnedMessage, head: &Parts, next: &Next<'_>) {
        let mut cursor = None;
        for _ in 0..PAGES {
            match self.page(call, head, next, cursor).await {
                Some(Some(more)) => cursor = Some(more),
                Some(None) => return,
                None => {
                    tracing::warn!("the server gave no list of its tools, for policies that read hints");
                    return;
                }
            }
        }
    }

    /// Learns from a page, and returns the cursor of the next one; `None` where there was no list.
    async fn page(
        self: &Arc<Self>,
        call: &OwnedMessage,
        head: &Parts,
        next: &Next<'_>,
        cursor: Option<String>,
    ) -> Option<Option<String>> {
        let found = Arc::new(Slot::new(None));
        let (this, kept) = (Arc::clone(self), Arc::clone(&found));
        let asked = next.ask(head, request(call, cursor), move |context| {
            context.filter_lists(AUTHORIZATION, &[ListKind::Tools], 0, move |list| {
                let more = this.learn(&list).and_then(|()| Ok(list.next_cursor()?.map(Into::into)));
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = more.ok();
                ready(Ok(list))
            });
        });
        let mut body = asked.await.ok()?.into_body();
        // A list in an event is found while the events are read.
        loop {
            let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
            if found.is_some() {
                return found;
            }
            body.frame().await?.ok()?;
        }
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
