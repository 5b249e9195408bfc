//! The filters of lists, and the watchers of messages, that middleware registered for one request.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_http::Share;
use mcp_wire::{Kind, List, ListKind, Message};

use super::{Judge, Refusal, Verdict};
use crate::bodies::beside;

/// The lists of an answer that a middleware edits.
#[derive(Clone, Copy, Debug)]
pub struct ListFilter {
    /// The type of the middleware.
    pub middleware: &'static str,
    /// The kinds of lists that it edits.
    pub kinds: &'static [ListKind],
    /// The work for one entry, as the bytes of a text that take as long to read. Long work keeps no other client waiting.
    pub cost: usize,
    /// Whether the edited list depends on who asks. The answer is for no cache that others use then.
    pub is_private: bool,
}

/// The filters of lists and the watchers of messages that middleware registered for one request, in the order of the middleware: the outermost first.
#[derive(Default)]
pub(crate) struct Filters {
    list: Vec<Filter>,
    /// The kinds of lists that they filter.
    kinds: Vec<ListKind>,
    watchers: Vec<Box<Watch>>,
    /// The session that the answer belongs to.
    pub(crate) session: Option<Arc<str>>,
}

struct Filter {
    filter: ListFilter,
    edit: Box<Edit>,
}

type Watch = dyn Fn(Option<&Arc<str>>, &Message<'_>) + Send + Sync;
type Edit = dyn Fn(List) -> BoxFuture<'static, Result<List, &'static str>> + Send + Sync;

impl Filters {
    pub(crate) fn add<F>(&mut self, filter: ListFilter, edit: impl Fn(List) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<List, &'static str>> + Send + 'static,
    {
        let new: Vec<_> = filter.kinds.iter().filter(|kind| !self.kinds.contains(kind)).copied().collect();
        self.kinds.extend(new);
        self.list.push(Filter { filter, edit: Box::new(move |list| edit(list).boxed()) });
    }

    pub(crate) fn watch(&mut self, watch: impl Fn(Option<&Arc<str>>, &Message<'_>) + Send + Sync + 'static) {
        self.watchers.push(Box::new(watch));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.watchers.is_empty()
    }

    /// Whether the answer depends on who asks.
    pub(crate) fn is_private(&self) -> bool {
        self.list.iter().any(|Filter { filter, .. }| filter.is_private)
    }

    /// The middleware in whose name an answer is withheld that no filter can be shown.
    pub(crate) fn innermost(&self) -> &'static str {
        self.list.last().map_or("", |Filter { filter, .. }| filter.middleware)
    }

    fn read(&self, text: &Bytes) -> Result<Option<List>, &'static str> {
        let mut list = List::read(text.clone(), &self.kinds)?;
        match &mut list {
            Some(list) if self.is_private() => list.keep_private()?,
            Some(_) => {}
            None => self.show(text),
        }
        Ok(list)
    }

    /// Shows a text to the watchers, if it is a request or a notification.
    fn show(&self, text: &[u8]) {
        if self.watchers.is_empty() {
            return;
        }
        if let Ok(message) = Message::parse(text)
            && message.kind() != Kind::Response
        {
            self.watchers.iter().for_each(|watch| watch(self.session.as_ref(), &message));
        }
    }
}

/// The innermost filter is the first, so that each sees what is left by those inside of it. The list is read once and written once.
impl Judge for Filters {
    async fn judge(self: &Arc<Self>, text: Bytes, share: Share) -> (Verdict, Share) {
        let (length, this) = (text.len(), Arc::clone(self));
        let withheld = |middleware, reason| Verdict::Withhold(Refusal { middleware, reason });
        let (read, mut share) = beside(length, move || (this.read(&text), share)).await;
        let mut list = match read {
            Ok(Some(list)) => list,
            Ok(None) => return (Verdict::Pass, share),
            Err(reason) => return (withheld(self.innermost(), reason), share),
        };
        for at in (0..self.list.len()).rev() {
            let ListFilter { middleware, kinds, cost, .. } = self.list[at].filter;
            if !kinds.contains(&list.kind()) {
                continue;
            }
            let (this, held) = (Arc::clone(self), share);
            let work = length.max(list.entries().len().saturating_mul(cost));
            let (edited, held) = beside(work, move || ((this.list[at].edit)(list), held)).await;
            (list, share) = match edited.await {
                Ok(list) => (list, held),
                Err(reason) => return (withheld(middleware, reason), held),
            };
        }
        beside(length, move || (list.into_text().map_or(Verdict::Pass, Verdict::Replace), share)).await
    }
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filters: Vec<_> = self.list.iter().map(|Filter { filter, .. }| filter).collect();
        f.debug_struct("Filters").field("list", &filters).finish_non_exhaustive()
    }
}
